// The referee itself, on cases worked out by hand: 100 GB/s and 2 us inside a node, 10 GB/s and 10
// us a device between nodes, of which Assumptions::link_efficiency, 0.8, is reached; 1 GB to move.

#include <gtest/gtest.h>

#include "tests/referee/layer.h"
#include "tests/referee/redistribution.h"
#include "tests/referee/schedule.h"

namespace braid::referee {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kRounding = 1e-12;
constexpr double kNear = 80e9, kFar = 8e9;  // bytes/s that are reached

Cluster nodes_of(const std::vector<int>& devices) {
  Cluster cluster;
  cluster.device_types.emplace_back();
  for (const int count : devices)
    cluster.groups.push_back({.count = 1,
                              .device_type = 0,
                              .devices = count,
                              .inside = {BytesPerSecond(100e9), Seconds(2e-6)}});
  cluster.between = {BytesPerSecond(10e9), Seconds(10e-6)};
  return cluster;
}

Group range(int begin, int end, int step = 1) {
  Group ids;
  for (int id = begin; id < end; id += step) ids.push_back(id);
  return ids;
}

TEST(HandWorked, AHopIsWhatLiesBetweenItsEnds) {
  const Wires wires(nodes_of({8, 8}));
  const Collectives collectives(wires);
  const auto hop = [&](int from, int to) { return collectives.transfer({from}, {to}, kGigabyte); };
  EXPECT_NEAR(hop(6, 7), 2e-6 + 1 / 80.0, kRounding);
  EXPECT_NEAR(hop(7, 8), 10e-6 + 1 / 8.0, kRounding) << "neighbours in ids, on two nodes";
  EXPECT_NEAR(hop(0, 15), 10e-6 + 1 / 8.0, kRounding);
}

struct GatherCase {
  const char* fact;
  std::vector<int> nodes;  // devices of each
  Groups groups;
  double seconds;
};

TEST(HandWorked, AnAllGatherTakesRingsInNodesAndATreeOverThem) {
  const GatherCase cases[] = {
      // Three steps of 2 us; three quarters of the data pass each port.
      {"four in a node", {8}, {range(0, 4)}, 6e-6 + 0.75 * kGigabyte / kNear},
      // Eight stripes over eight cards: 15/16 of an eighth each; seven steps and one tree level.
      {"sixteen on 2 x 8",
       {8, 8},
       {range(0, 16)},
       14e-6 + 10e-6 + 15.0 / 16 / 8 * kGigabyte / kFar},
      // Devices 4 to 7 straddle, two a node: half of three quarters on each card.
      {"tp4 dp3 on 2 x 6",
       {6, 6},
       {range(0, 4), range(4, 8), range(8, 12)},
       2e-6 + 10e-6 + 0.75 / 2 * kGigabyte / kFar},
      // One member alone on its node: one ring, one card.
      {"five on 4 + 1", {4, 1}, {range(0, 5)}, 6e-6 + 10e-6 + 0.8 * kGigabyte / kFar},
      // Two levels of the tree reach three and four nodes.
      {"one of each of four nodes",
       {2, 2, 2, 2},
       {range(0, 8, 2)},
       20e-6 + 0.75 * kGigabyte / kFar},
  };
  for (const GatherCase& c : cases) {
    const Wires wires(nodes_of(c.nodes));
    EXPECT_NEAR(Collectives(wires).all_gather(c.groups, kGigabyte), c.seconds, kRounding) << c.fact;
    EXPECT_NEAR(Collectives(wires).all_reduce(c.groups, kGigabyte), 2 * c.seconds, kRounding)
        << c.fact;
  }
}

TEST(HandWorked, AnAllToAllIsBoundByTheCardOfTheLoneliest) {
  const Wires wires(nodes_of({4, 4}));
  const Collectives collectives(wires);
  EXPECT_NEAR(collectives.all_to_all({range(0, 4)}, kGigabyte), 2 * 2e-6 + 0.75 / 80, kRounding);
  EXPECT_NEAR(collectives.all_to_all({range(0, 8)}, kGigabyte), 3 * 10e-6 + 0.5 / 8, kRounding);
  // Three here and one there: that one sends three quarters over its card.
  EXPECT_NEAR(collectives.all_to_all({{1, 2, 3, 4}}, kGigabyte), 2 * 10e-6 + 0.75 / 8, kRounding);
}

TEST(HandWorked, ARingShiftWaitsForItsSlowestHop) {
  const Wires wires(nodes_of({4, 4}));
  const Collectives collectives(wires);
  EXPECT_NEAR(collectives.ring_shift({range(0, 4)}, kGigabyte), 2e-6 + 1 / 80.0, kRounding);
  EXPECT_NEAR(collectives.ring_shift({range(2, 6)}, kGigabyte), 10e-6 + 1 / 8.0, kRounding);
}

TEST(HandWorked, MeshOrdersCountAlongTheirAxes) {
  const Strategy s{.tp = 2, .cp = 1, .dp = 2};
  const auto ids = [&](MeshOrder order, int stage) {
    return groups_of(devices_of_stage(8, 2, order, stage, s), s);
  };
  EXPECT_EQ(ids(MeshOrder::pp_dp_cp_tp, 1).tensor, (Groups{{4, 5}, {6, 7}}));
  EXPECT_EQ(ids(MeshOrder::pp_dp_cp_tp, 1).replicas, (Groups{{4, 6}, {5, 7}}));
  EXPECT_EQ(ids(MeshOrder::dp_cp_tp_pp, 1).tensor, (Groups{{1, 3}, {5, 7}}));
  EXPECT_EQ(ids(MeshOrder::pp_tp_cp_dp, 0).tensor, (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(ids(MeshOrder::pp_tp_cp_dp, 0).replicas, (Groups{{0, 1}, {2, 3}}));
}

TEST(HandWorked, AChangeOfLayoutMovesWhatADeviceDoesNotKeep) {
  const Wires wires(nodes_of({4}));
  const auto change = [&](const Strategy& from, const Strategy& to, bool zigzag) {
    const auto at = [](const Strategy& s) {
      return devices_of_stage(4, 1, MeshOrder::pp_dp_cp_tp, 0, s);
    };
    return redistribute(wires,
                        {.before = at(from),
                         .after = at(to),
                         .from = from,
                         .to = to,
                         .zigzag = zigzag,
                         .bytes = 4 * kGigabyte},
                        {});
  };
  // Each keeps a quarter of its gigabyte.
  EXPECT_NEAR(change({.dp = 4}, {.tp = 4}, false), 2 * 2e-6 + 0.75 / 80, kRounding);
  // Contiguous parts of the tokens are the same whoever cuts them.
  EXPECT_EQ(change({.cp = 4}, {.tp = 4}, false), 0);
  // Blocks 0 and 7, 1 and 6, 2 and 5, 3 and 4 of eight to 01, 23, 45, 67: the second and third rank
  // have none of theirs.
  EXPECT_NEAR(change({.cp = 4}, {.tp = 4}, true), 2 * 2e-6 + 1 / 80.0, kRounding);
}

TEST(HandWorked, ComputeAndCommunicationSlowEachOtherDown) {
  // 1.1 as long while both run.
  EXPECT_NEAR(together(10, 4), 10.4, kRounding);
  EXPECT_NEAR(exposed(10, 4), 0.4, kRounding);
  EXPECT_NEAR(together(4, 10), 10.4, kRounding);
  EXPECT_NEAR(exposed(0, 4), 4, kRounding);
}

struct ScheduleCase {
  const char* fact;
  PipelineShape shape;
  double seconds;
};

// Forward 1 s, backward by input 1 s and by weights 1 s of a stage, half of it in each of two
// chunks; no transfers.
TEST(HandWorked, EvenStagesTakeTheTimesOfTheLiterature) {
  using enum ScheduleKind;
  const ScheduleCase cases[] = {
      {"one stage has no bubble", {one_f_one_b, 1, 4, 1}, 12},
      {"gpipe: m + p - 1 passes", {gpipe, 4, 8, 1}, 11 * 3},
      {"1F1B: the same", {one_f_one_b, 4, 8, 1}, 11 * 3},
      {"interleaved: half of the bubble", {interleaved, 4, 8, 2}, 8 * 3 + 1.5 * 3},
      // Weight gradients fill all but (p - 1)(F + Bi - W).
      {"ZB-H1: a third of it", {zero_bubble, 4, 8, 1}, 8 * 3 + 3},
  };
  for (const ScheduleCase& c : cases) {
    const double part = 1.0 / c.shape.chunks;
    StageSeconds stage;
    stage.chunks.assign(static_cast<std::size_t>(c.shape.chunks), {part, part, part});
    const std::vector<StageSeconds> stages(static_cast<std::size_t>(c.shape.stages), stage);
    EXPECT_NEAR(play(c.shape, stages), c.seconds, kRounding) << c.fact;
  }
}

TEST(HandWorked, UpdatesWaitForTheSlowestReduction) {
  StageSeconds first{.chunks = {{1, 2, 0}}, .reduce = 5, .update = 1, .to_next = 0.25};
  StageSeconds last{.chunks = {{1, 2, 0}}, .reduce = 0, .update = 3, .to_next = 0};
  // Down and up with two transfers, 6.5 s; 5 s of reduction; the longest update.
  EXPECT_NEAR(play({ScheduleKind::one_f_one_b, 2, 1, 1}, {first, last}), 6.5 + 5 + 3, kRounding);
}

}  // namespace
}  // namespace braid::referee
