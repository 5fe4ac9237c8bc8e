// Collectives on links worked out by hand: two nodes of four devices, 100 GB/s and 2 us inside, 10
// GB/s and 10 us a device between them.

#include "planner/cost/network.h"

#include <gtest/gtest.h>

#include <string>

namespace braid {
namespace {

constexpr double kGigabyte = 1e9;
constexpr DeviceSpan kAll{0, 8};

Link link(double bandwidth, double latency) {
  return {BytesPerSecond(bandwidth), Seconds(latency)};
}

Cluster two_nodes() {
  return {.name = "two nodes",
          .device_types = {{.name = "device",
                            .peak_bf16 = FlopsPerSecond(1e14),
                            .peak_fp32 = FlopsPerSecond(1e13),
                            .memory = Bytes(std::int64_t{1} << 35),
                            .memory_bandwidth = BytesPerSecond(1e12)}},
          .groups = {{.count = 2, .device_type = 0, .devices = 4, .inside = link(100e9, 2e-6)}},
          .between = link(10e9, 10e-6)};
}

struct Case {
  const char* fact;
  GroupShape group;
  double seconds;
};

TEST(Network, AllGatherMovesAllButOnesOwnShare) {
  const Cluster cluster = two_nodes();
  const Network network(cluster, nullptr, 1.0);
  constexpr Case kCases[] = {
      {"one rank is free", {1, 1}, 0},
      {"two neighbours move half", {2, 1}, 0.005 + 2e-6},
      {"four neighbours move three quarters in three steps", {4, 1}, 0.0075 + 6e-6},
      {"a stride inside a node changes nothing", {2, 2}, 0.005 + 2e-6},
      {"one member a node has one device's share of the network", {2, 4}, 0.05 + 10e-6},
      {"two members a node have two", {4, 2}, 0.0375 + 2e-6 + 10e-6},
      {"all members of both nodes have four", {8, 1}, 0.021875 + 6e-6 + 10e-6},
  };
  for (const Case& c : kCases) {
    EXPECT_NEAR(network.all_gather(kGigabyte, c.group, kAll), c.seconds, 1e-12) << c.fact;
    EXPECT_NEAR(network.reduce_scatter(kGigabyte, c.group, kAll), c.seconds, 1e-12) << c.fact;
    EXPECT_NEAR(network.all_reduce(kGigabyte, c.group, kAll), 2 * c.seconds, 1e-12) << c.fact;
  }
}

TEST(Network, AllToAllTakesTheLongerOfNearAndFar) {
  const Cluster cluster = two_nodes();
  const Network network(cluster, nullptr, 1.0);
  constexpr Case kCases[] = {
      {"one rank is free", {1, 1}, 0},
      {"four neighbours exchange three quarters", {4, 1}, 0.0075 + 4e-6},
      {"half of it leaves the node", {8, 1}, 0.05 + 30e-6},
      {"everything but one's own leaves the node", {2, 4}, 0.05 + 10e-6},
  };
  for (const Case& c : kCases)
    EXPECT_NEAR(network.all_to_all(kGigabyte, c.group, kAll), c.seconds, 1e-12) << c.fact;
}

TEST(Network, PointToPointAsksWhereBothEndsSit) {
  const Cluster cluster = two_nodes();
  const Network network(cluster, nullptr, 1.0);
  EXPECT_NEAR(network.point_to_point(kGigabyte, 0, 1), 0.01 + 2e-6, 1e-12);
  EXPECT_NEAR(network.point_to_point(kGigabyte, 1, 3), 0.01 + 2e-6, 1e-12);
  EXPECT_NEAR(network.point_to_point(kGigabyte, 0, 4), 0.1 + 10e-6, 1e-12);
  EXPECT_NEAR(network.point_to_point(kGigabyte, 3, 4), 0.1 + 10e-6, 1e-12) << "a short distance";
  EXPECT_EQ(network.point_to_point(0, 0, 4), 0) << "nothing takes no time";
}

TEST(Network, EachStageBoundaryHasItsOwnPrice) {
  const Cluster cluster = two_nodes();
  const Network network(cluster, nullptr, 1.0);
  const Mesh mesh{.devices = 8, .stages = 4};
  const auto boundary = [&](int stage) {
    return network.transfer(kGigabyte, devices_of_stage(stage, mesh),
                            devices_of_stage(stage + 1, mesh));
  };
  EXPECT_NEAR(boundary(0), 0.01 + 2e-6, 1e-12);
  EXPECT_NEAR(boundary(1), 0.1 + 10e-6, 1e-12);
  EXPECT_NEAR(boundary(2), 0.01 + 2e-6, 1e-12);
}

TEST(Network, ARingIsAsSlowAsItsSlowestHop) {
  const Cluster cluster = two_nodes();
  const Network network(cluster, nullptr, 1.0);
  EXPECT_NEAR(network.ring_shift(kGigabyte, {4, 1}, kAll), 0.01 + 2e-6, 1e-12);
  EXPECT_NEAR(network.ring_shift(kGigabyte, {8, 1}, kAll), 0.1 + 10e-6, 1e-12);
}

// Nodes of six: the second of three groups of four straddles them.
TEST(Network, GroupsThatStraddleNodesUseTheNetwork) {
  Cluster cluster = two_nodes();
  cluster.groups.front().devices = 6;
  const Network network(cluster, nullptr, 1.0);
  EXPECT_NEAR(network.all_gather(kGigabyte, {4, 1}, {0, 4}), 0.0075 + 6e-6, 1e-12);
  EXPECT_NEAR(network.all_gather(kGigabyte, {4, 1}, {0, 12}), 0.75 / 20 + 2e-6 + 10e-6, 1e-12);
}

// Three nodes of four: devices 0 to 5 have four members on one node and two on the next.
TEST(Network, TheNodeWithTheFewestMembersSetsARingsPace) {
  Cluster cluster = two_nodes();
  cluster.groups.front().count = 3;
  const Network network(cluster, nullptr, 1.0);
  EXPECT_NEAR(network.all_gather(kGigabyte, {6, 1}, {0, 6}), 5.0 / 6 / 20 + 6e-6 + 10e-6, 1e-12);
  const Network modelled(cluster, nullptr, 1.0, true);
  Cluster slow = cluster;
  slow.between.bandwidth = BytesPerSecond(1e9);
  const Network slowed(slow, nullptr, 1.0, true);
  EXPECT_GT(slowed.all_reduce(kGigabyte, {6, 1}, {0, 6}),
            5 * modelled.all_reduce(kGigabyte, {6, 1}, {0, 6}));
}

TEST(Network, EfficiencyScalesBandwidthAndLeavesLatency) {
  const Cluster cluster = two_nodes();
  const Network network(cluster, nullptr, 0.5);
  EXPECT_NEAR(network.all_gather(kGigabyte, {2, 1}, kAll), 0.010 + 2e-6, 1e-12);
  EXPECT_NEAR(network.all_to_all(kGigabyte, {2, 4}, kAll), 0.1 + 10e-6, 1e-12);
  EXPECT_NEAR(network.point_to_point(kGigabyte, 0, 4), 0.2 + 10e-6, 1e-12);
}

TEST(Network, OneNodeHasNoNetwork) {
  Cluster cluster = two_nodes();
  cluster.groups.front().count = 1;
  const Network network(cluster, nullptr, 1.0);
  EXPECT_EQ(network.topology().placements({4, 1}, {0, 4}).front().nodes, 1);
  EXPECT_NEAR(network.all_gather(kGigabyte, {4, 1}, {0, 4}), 0.0075 + 6e-6, 1e-12);
}

TEST(Network, TheSlowestNodeOfAStageSetsItsPace) {
  Cluster cluster = two_nodes();
  cluster.groups.front().count = 1;
  cluster.groups.push_back(cluster.groups.front());
  cluster.groups.back().inside = link(50e9, 4e-6);
  const Network network(cluster, nullptr, 1.0);
  EXPECT_NEAR(network.all_gather(kGigabyte, {2, 1}, {0, 4}), 0.005 + 2e-6, 1e-12);
  EXPECT_NEAR(network.all_gather(kGigabyte, {2, 1}, {4, 8}), 0.010 + 4e-6, 1e-12);
  EXPECT_NEAR(network.all_gather(kGigabyte, {2, 1}, {0, 8}), 0.010 + 4e-6, 1e-12);
}

TEST(Network, MeasuredSweepsReplaceTheLinks) {
  const Cluster cluster = two_nodes();
  Profile profile;
  // 1 ms and 2 ns a byte.
  for (const std::int64_t bytes : {1'000'000, 2'000'000, 4'000'000})
    profile.collectives.push_back({.op = Collective::all_reduce,
                                   .ranks = 4,
                                   .stride = 1,
                                   .bytes = Bytes(bytes),
                                   .seconds = Seconds(1e-3 + 2e-9 * static_cast<double>(bytes))});
  const Network network(cluster, &profile, 1.0);
  EXPECT_NEAR(network.all_reduce(3e6, {4, 1}, kAll), 7e-3, 1e-12);
  EXPECT_NEAR(network.all_gather(3e6, {4, 1}, kAll), 3.5e-3, 1e-12) << "half an all-reduce";
  EXPECT_NEAR(network.all_gather(kGigabyte, {2, 1}, kAll), 0.005 + 2e-6, 1e-12)
      << "another size was not measured";
  EXPECT_NEAR(network.all_gather(kGigabyte, {4, 2}, kAll), 0.0375 + 2e-6 + 10e-6, 1e-12)
      << "nor was a group that leaves its node";
}

TEST(Network, MeasuredBandwidthsKeepTheLinksLatency) {
  const Cluster cluster = two_nodes();
  Profile profile;
  profile.bandwidths = {
      {.op = Collective::all_reduce, .ranks = 8, .stride = 1, .bandwidth = BytesPerSecond(20e9)},
      {.op = Collective::point_to_point,
       .ranks = 2,
       .stride = 4,
       .bandwidth = BytesPerSecond(5e9)}};
  const Network network(cluster, &profile, 1.0);
  // Bus bandwidth: 2 · 7/8 of the bytes pass it.
  EXPECT_NEAR(network.all_reduce(kGigabyte, {8, 1}, kAll), 1.75 / 20 + 10e-6, 1e-12);
  EXPECT_NEAR(network.point_to_point(kGigabyte, 0, 4), 0.2 + 10e-6, 1e-12);
}

}  // namespace
}  // namespace braid
