// Placement of groups on nodes, held against a plain enumeration of device ids.

#include "planner/cost/topology.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace braid {
namespace {

Cluster cluster_of(const std::vector<std::pair<int, double>>& nodes) {
  Cluster cluster;
  cluster.device_types.emplace_back();
  for (const auto& [devices, bandwidth] : nodes)
    cluster.groups.push_back({.count = 1,
                              .device_type = 0,
                              .devices = devices,
                              .inside = {BytesPerSecond(bandwidth), Seconds(1e-6)}});
  cluster.between = {BytesPerSecond(5.0), Seconds(1e-5)};
  return cluster;
}

// Node by node, from the definition.
GroupPlacement enumerate(const std::vector<std::pair<int, double>>& nodes,
                         const std::vector<int>& ids) {
  std::map<int, int> members;
  GroupPlacement p{.size = static_cast<int>(ids.size()), .latency = 1e-6};
  for (const int id : ids) {
    int node = 0, end = nodes[0].first;
    while (id >= end) end += nodes[static_cast<std::size_t>(++node)].first;
    ++members[node];
    const double bandwidth = nodes[static_cast<std::size_t>(node)].second;
    p.bandwidth = p.bandwidth == 0 ? bandwidth : std::min(p.bandwidth, bandwidth);
  }
  p.nodes = static_cast<int>(members.size());
  p.fewest = p.size;
  for (const auto& [node, count] : members) {
    p.fewest = std::min(p.fewest, count);
    p.ring_latency = std::max(p.ring_latency, (count - 1) * 1e-6);
  }
  return p;
}

TEST(Topology, PlacementsAreThoseOfAnEnumeration) {
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int crossing = 0, cases = 0;
  for (int round = 0; round < 2000; ++round) {
    const bool alike = draw(0, 1) == 1;
    std::vector<std::pair<int, double>> nodes;
    for (int n = draw(1, 4), width = draw(1, 8); n > 0; --n)
      nodes.emplace_back(alike ? width : draw(1, 6), alike ? 10.0 : draw(7, 12));
    int devices = 0;
    for (const auto& [count, bandwidth] : nodes) devices += count;
    std::vector<int> degrees;
    for (int d = 1; d <= devices; ++d)
      if (devices % d == 0) degrees.push_back(d);
    const int stages =
        degrees[static_cast<std::size_t>(draw(0, static_cast<int>(degrees.size()) - 1))];
    const int per_stage = devices / stages;
    Strategy s;
    for (int* degree : {&s.tp, &s.cp}) do {
        *degree = draw(1, per_stage);
      } while (per_stage % (s.tp * s.cp) != 0);
    s.dp = per_stage / (s.tp * s.cp);
    const Mesh mesh{devices, stages, kMeshOrders[draw(0, 2)]};
    const Topology topology(cluster_of(nodes));
    for (int stage = 0; stage < stages; ++stage)
      for (const Axis axis : {Axis::data, Axis::context, Axis::tensor}) {
        std::set<GroupPlacement> expected;
        for (int device = 0; device < devices; ++device)
          if (stage_of(device, mesh) == stage)
            expected.insert(enumerate(nodes, peers(device, axis, mesh, s)));
        const auto found =
            topology.placements(group_along(mesh, s, axis), devices_of_stage(stage, mesh));
        EXPECT_EQ(std::set(found.begin(), found.end()), expected)
            << "round " << round << ", stage " << stage;
        ++cases;
        for (const GroupPlacement& p : found) crossing += p.crosses() ? 1 : 0;
      }
  }
  EXPECT_GT(cases, 5000);
  EXPECT_GT(crossing, 500);
}

TEST(Topology, StagesThatLieDifferentlyOnNodesHaveOtherSignatures) {
  const Topology six(cluster_of({{6, 10.0}, {6, 10.0}}));
  EXPECT_EQ(six.signature({0, 4}), six.signature({8, 12}));
  EXPECT_NE(six.signature({0, 4}), six.signature({4, 8})) << "straddles the nodes";
  const Topology unlike(cluster_of({{4, 10.0}, {4, 11.0}}));
  EXPECT_NE(unlike.signature({0, 4}), unlike.signature({4, 8})) << "another link";
  std::vector<std::pair<int, double>> many;
  for (int node = 0; node < 12; ++node) many.emplace_back(2, 10.0 + node);
  const Topology wide(cluster_of(many));
  EXPECT_NE(wide.signature({0, 22}), wide.signature({2, 24})) << "more than eight entries";
}

}  // namespace
}  // namespace braid
