// The arithmetic of groups against its dumb twin: coordinates written out for every device of every
// small mesh.

#include "planner/strategy/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

namespace braid {
namespace {

constexpr std::array kAxes = {Axis::pipeline, Axis::data, Axis::context, Axis::tensor};

std::array<Axis, 4> slowest_first(MeshOrder order) {
  switch (order) {
    case MeshOrder::pp_dp_cp_tp:
      return {Axis::pipeline, Axis::data, Axis::context, Axis::tensor};
    case MeshOrder::dp_cp_tp_pp:
      return {Axis::data, Axis::context, Axis::tensor, Axis::pipeline};
    case MeshOrder::pp_tp_cp_dp:
      return {Axis::pipeline, Axis::tensor, Axis::context, Axis::data};
  }
  return {};
}

int degree_of(Axis axis, const Mesh& mesh, const Strategy& s) {
  switch (axis) {
    case Axis::pipeline:
      return mesh.stages;
    case Axis::data:
      return s.dp;
    case Axis::context:
      return s.cp;
    case Axis::tensor:
      return s.tp;
    case Axis::outer:
    case Axis::row:
    case Axis::column:
      break;  // parts of the tensor axis
  }
  return 0;
}

using Coordinates = std::array<int, 4>;  // by Axis

std::vector<Coordinates> all_coordinates(const Mesh& mesh, const Strategy& s) {
  std::vector<Coordinates> all(static_cast<std::size_t>(mesh.devices));
  int stride = mesh.devices;
  for (const Axis axis : slowest_first(mesh.order)) {
    const int degree = degree_of(axis, mesh, s);
    stride /= degree;
    for (int id = 0; id < mesh.devices; ++id)
      all[static_cast<std::size_t>(id)][static_cast<std::size_t>(axis)] = id / stride % degree;
  }
  return all;
}

// Ids whose coordinates equal self's, except along the free axes.
std::vector<int> companions(int self, const std::vector<Axis>& free,
                            const std::vector<Coordinates>& all) {
  std::vector<int> ids;
  for (int id = 0; id < static_cast<int>(all.size()); ++id) {
    const bool equal = std::ranges::all_of(kAxes, [&](Axis axis) {
      const auto a = static_cast<std::size_t>(axis);
      return std::ranges::find(free, axis) != free.end() ||
             all[static_cast<std::size_t>(id)][a] == all[static_cast<std::size_t>(self)][a];
    });
    if (equal) ids.push_back(id);
  }
  return ids;
}

void expect_shape(const std::vector<int>& ids, const GroupShape& shape, const char* what) {
  ASSERT_EQ(static_cast<int>(ids.size()), shape.size) << what;
  for (std::size_t k = 1; k < ids.size(); ++k) EXPECT_EQ(ids[k] - ids[k - 1], shape.stride) << what;
}

void for_every_small_mesh(const std::function<void(const Mesh&, const Strategy&)>& check) {
  for (const MeshOrder order : kMeshOrders)
    for (const int devices : {1, 2, 6, 8, 16, 24})
      for (int stages = 1; stages <= devices; ++stages)
        for (int tp = 1; tp <= devices; ++tp)
          for (int cp = 1; cp <= devices; ++cp) {
            if (devices % (stages * tp * cp) != 0) continue;
            for (const TensorKind kind : {TensorKind::megatron, TensorKind::ulysses}) {
              const Mesh mesh{devices, stages, order};
              const Strategy s{
                  .tp = tp, .tp_kind = kind, .cp = cp, .dp = devices / (stages * tp * cp)};
              SCOPED_TRACE(name_of(order) + ", " + std::to_string(stages) + " stages of " +
                           to_string(s));
              check(mesh, s);
              if (testing::Test::HasFailure()) return;
            }
          }
}

TEST(Mesh, PeersDifferAlongOneAxisOnly) {
  for_every_small_mesh([](const Mesh& mesh, const Strategy& s) {
    const auto all = all_coordinates(mesh, s);
    for (const Axis axis : kAxes)
      for (int id = 0; id < mesh.devices; ++id) {
        const std::vector<int> group = peers(id, axis, mesh, s);
        EXPECT_EQ(group, companions(id, {axis}, all));
        expect_shape(group, group_along(mesh, s, axis), "along an axis");
      }
  });
}

// Every device stands in exactly one group of an axis: the one that all its members name.
TEST(Mesh, GroupsPartitionTheDevices) {
  for_every_small_mesh([](const Mesh& mesh, const Strategy& s) {
    for (const Axis axis : kAxes) {
      std::vector<int> seen(static_cast<std::size_t>(mesh.devices), 0);
      for (int id = 0; id < mesh.devices; ++id) {
        const std::vector<int> group = peers(id, axis, mesh, s);
        ASSERT_TRUE(std::ranges::find(group, id) != group.end());
        for (const int member : group) ASSERT_EQ(peers(member, axis, mesh, s), group);
        if (group.front() == id)
          for (const int member : group) ++seen[static_cast<std::size_t>(member)];
      }
      EXPECT_TRUE(std::ranges::all_of(seen, [](int times) { return times == 1; }));
    }
  });
}

// Two squares of two by two beside two replicas: ids are replica, square, row, column.
TEST(Mesh, ATensorAxisIsSquaresOfRowsAndColumns) {
  const Strategy s{.tp = 8, .tp_kind = TensorKind::spatial_temporal, .dp = 2, .square = 2};
  const Mesh near{16, 1, MeshOrder::pp_dp_cp_tp};
  EXPECT_EQ(peers(13, Axis::column, near, s), (std::vector{12, 13}));
  EXPECT_EQ(peers(13, Axis::row, near, s), (std::vector{13, 15}));
  EXPECT_EQ(peers(13, Axis::outer, near, s), (std::vector{9, 13}));
  const Mesh far{16, 1, MeshOrder::pp_tp_cp_dp};  // replicas are neighbours
  EXPECT_EQ(peers(13, Axis::column, far, s), (std::vector{13, 15}));
  EXPECT_EQ(peers(13, Axis::row, far, s), (std::vector{9, 13}));
  EXPECT_EQ(peers(13, Axis::outer, far, s), (std::vector{5, 13}));
}

TEST(Mesh, ReplicasShareEveryCoordinateThatCutsParameters) {
  for_every_small_mesh([](const Mesh& mesh, const Strategy& s) {
    std::vector<Axis> replicating = {Axis::data, Axis::context};
    if (s.tp_kind == TensorKind::ulysses) replicating.push_back(Axis::tensor);
    const auto all = all_coordinates(mesh, s);
    for (int id = 0; id < mesh.devices; ++id) {
      const std::vector<int> replicas = companions(id, replicating, all);
      // One replica has no neighbour whose distance could be told.
      if (replicas.size() > 1) expect_shape(replicas, replica_group(mesh, s), "replicas");
      EXPECT_EQ(static_cast<int>(replicas.size()), replica_group(mesh, s).size);
      for (const Axis axis : replicating)
        for (const int peer : peers(id, axis, mesh, s))
          EXPECT_TRUE(std::ranges::binary_search(replicas, peer));
    }
  });
}

TEST(Mesh, ExpertsAreSplitAmongNeighboursOnTheDataAxis) {
  for_every_small_mesh([](const Mesh& mesh, const Strategy& plain) {
    for (int ep = 1; ep <= plain.dp; ++ep) {
      if (plain.dp % ep != 0) continue;
      Strategy s = plain;
      s.ep = ep;
      const GroupShape group = expert_group(mesh, s);
      EXPECT_EQ(group.size, ep);
      const std::vector<int> data = peers(0, Axis::data, mesh, s);
      for (int k = 0; k < ep; ++k)
        EXPECT_EQ(data[static_cast<std::size_t>(k)], data.front() + k * group.stride);
    }
  });
}

TEST(Mesh, KnowsTheStageOfEveryDevice) {
  for_every_small_mesh([](const Mesh& mesh, const Strategy& s) {
    const auto all = all_coordinates(mesh, s);
    for (int stage = 0; stage < mesh.stages; ++stage) {
      std::vector<int> members;
      for (int id = 0; id < mesh.devices; ++id)
        if (all[static_cast<std::size_t>(id)][static_cast<std::size_t>(Axis::pipeline)] == stage)
          members.push_back(id);
      for (const int id : members) EXPECT_EQ(stage_of(id, mesh), stage);
      EXPECT_EQ(devices_of_stage(stage, mesh).first, members.front());
      EXPECT_EQ(devices_of_stage(stage, mesh).end, members.back() + 1);
    }
    for (int id = 0; id < mesh.devices; ++id) {
      const std::vector<int> stages = peers(id, Axis::pipeline, mesh, s);
      for (std::size_t k = 1; k < stages.size(); ++k)
        EXPECT_EQ(stages[k] - stages[k - 1], stage_distance(mesh));
    }
  });
}

struct GroupCase {
  const char* fact;
  MeshOrder order;
  Axis axis;
  GroupShape shape;
};

// Two stages of eight devices: tp 2, cp 2, dp 2.
constexpr GroupCase kGroups[] = {
    {"tensor ranks are neighbours", MeshOrder::pp_dp_cp_tp, Axis::tensor, {2, 1}},
    {"stages are far", MeshOrder::pp_dp_cp_tp, Axis::pipeline, {2, 8}},
    {"replicas stand apart", MeshOrder::pp_dp_cp_tp, Axis::data, {2, 4}},
    {"stages are neighbours", MeshOrder::dp_cp_tp_pp, Axis::pipeline, {2, 1}},
    {"tensor ranks leave room for stages", MeshOrder::dp_cp_tp_pp, Axis::tensor, {2, 2}},
    {"replicas are neighbours", MeshOrder::pp_tp_cp_dp, Axis::data, {2, 1}},
    {"tensor ranks are far", MeshOrder::pp_tp_cp_dp, Axis::tensor, {2, 4}},
};

TEST(Mesh, PlacesTheAxesInOrder) {
  constexpr Strategy kCube{.tp = 2, .cp = 2, .dp = 2};
  for (const GroupCase& c : kGroups)
    EXPECT_EQ(group_along({16, 2, c.order}, kCube, c.axis), c.shape) << c.fact;
}

TEST(MeshDeathTest, AbortsOnAStrategyThatDoesNotFillItsStage) {
  EXPECT_DEATH(group_along({8, 2, MeshOrder::pp_dp_cp_tp}, {.tp = 2}, Axis::tensor),
               "must fill its stage");
}

}  // namespace
}  // namespace braid
