// Rings, sends and nodes that are not alike.

#include <gtest/gtest.h>

#include "planner/validate/complete.h"
#include "planner/validate/links.h"
#include "tests/validate/runs.h"

namespace braid {
namespace {

// Nodes of four devices with round figures, and nothing but links.
RunSetup plain_setup() {
  RunSetup setup{.set = "vtrain_single"};
  setup.fabric = {.node_width = 4,
                  .inside = 100e9,
                  .inside_latency = 1e-3,
                  .card = 1e9,
                  .card_latency = 2e-3,
                  .point = 10e9};
  return setup;
}

RunSplit split_of(int tp, int pp, int dp) {
  RunSplit split;
  split.dp = dp;
  for (int i = 0; i < pp; ++i) split.stages.push_back({.tp = tp});
  return split;
}

constexpr double kGigabyte = 1e9;

TEST(Links, ARingHasTheCardsOfAllItsMembersUnlessItLeavesByOne) {
  RunSetup setup = plain_setup();
  const RunSplit split = split_of(2, 1, 8);
  // Eight replicas, two of them on each of four nodes: 10 ms inside a node, and half of the bytes
  // around each of two rings of four nodes, with a card each.
  const double all = RunLinks(split, setup).all_reduce(kGigabyte, {8, 2}, 0);
  EXPECT_NEAR(all, 0.01 + 2 * 0.75 * 0.5, 0.005);
  setup.fabric.ring_has_one_card = true;
  const double one = RunLinks(split, setup).all_reduce(kGigabyte, {8, 2}, 0);
  EXPECT_NEAR(one, 0.01 + 2 * 0.75, 0.005);
}

TEST(Links, ARingThroughWholeNodesHasAllTheirCards) {
  RunSetup setup = plain_setup();
  const RunSplit split = split_of(1, 1, 16);
  const double before = RunLinks(split, setup).all_reduce(kGigabyte, {16, 1}, 0);
  setup.fabric.ring_has_one_card = true;
  EXPECT_DOUBLE_EQ(RunLinks(split, setup).all_reduce(kGigabyte, {16, 1}, 0), before);
}

TEST(Links, AStageThatHasAnUnlikeNodeWaitsForItsLinks) {
  RunSetup setup = plain_setup();
  setup.first_other_node = 1;
  setup.other_nodes = setup.fabric;
  setup.other_nodes.inside /= 10;
  setup.other_nodes.card = 1;  // never looked at
  const RunSplit split = split_of(4, 2, 1);
  const RunLinks links(split, setup);
  const double fast = links.all_reduce(kGigabyte, {4, 1}, 0) - setup.fabric.inside_latency;
  const double slow = links.all_reduce(kGigabyte, {4, 1}, 1) - setup.fabric.inside_latency;
  EXPECT_NEAR(slow / fast, 10, 0.1);
  const RunSplit wide = split_of(1, 1, 8);
  EXPECT_LT(RunLinks(wide, setup).all_reduce(kGigabyte, {8, 1}, 0), 1);
}

TEST(Links, SendsAcrossNodesHaveTheirOwnRate) {
  RunSetup setup = plain_setup();
  const RunSplit split = split_of(1, 2, 4);
  EXPECT_DOUBLE_EQ(RunLinks(split, setup).send(kGigabyte, 0), 1.002);
  setup.fabric.send = 2e9;
  EXPECT_DOUBLE_EQ(RunLinks(split, setup).send(kGigabyte, 0), 0.502);
  // One sender has the node's four shares.
  EXPECT_DOUBLE_EQ(RunLinks(split_of(1, 5, 1), setup).send(kGigabyte, 3), 0.127);
  // Inside a node neither matters.
  EXPECT_DOUBLE_EQ(RunLinks(split_of(1, 2, 1), setup).send(kGigabyte, 0), 0.101);
}

TEST(Links, SmallPartsStallOnTheirWayToAnUnlikeNode) {
  RunSetup setup = plain_setup();
  setup.fabric.stall = 7;
  setup.first_other_node = 2;
  setup.other_nodes = setup.fabric;
  const RunSplit parts = split_of(4, 3, 1), whole = split_of(1, 3, 4);
  constexpr double kSmall = 1e6, kLarge = 100e6;
  EXPECT_LT(RunLinks(parts, setup).send(kSmall, 0), 1);  // to a node of the same kind
  EXPECT_GT(RunLinks(parts, setup).send(kSmall, 1), 7);
  EXPECT_LT(RunLinks(parts, setup).send(kLarge, 1), 1);
  EXPECT_LT(RunLinks(whole, setup).send(kSmall, 1), 1);
}

TEST(Complete, CutsStagesOfDifferentSizesInsideBlocks) {
  RunSetup setup;
  for (const RunSetup& one : described_setups())
    if (one.set == "vtrain_single") setup = one;
  MeasuredRun run = gpt_run(0, 0, 2, 0, 1, 16);
  const double parameters = shape_of(run).parameters();
  run.layers = 3;
  run.stage_gpus = {1, 1};
  run.gpus = 2;
  run.vocab = 128;  // a head without weight
  const ModelShape model = shape_of(run);
  EXPECT_EQ(model.items.size(), 8U);  // the embedding, six halves, the head
  const RunSplit split = complete(run, model, setup);
  EXPECT_EQ(split.stages[0].end, 4);
  run.layers = 12;
  run.vocab = 0;
  EXPECT_DOUBLE_EQ(shape_of(run).parameters(), parameters);
}

TEST(Complete, RepeatsMoreWhereLessMemoryIsUsed) {
  RunSetup setup;
  for (const RunSetup& one : described_setups())
    if (one.set == "vtrain_single") setup = one;
  setup.devices.front().memory = 12e9;
  MeasuredRun run = gpt_run(0, 0, 2, 0, 4, 64);
  run.stage_gpus = {1, 1};
  run.gpus = 2;
  const ModelShape model = shape_of(run);
  const double roomy = complete(run, model, setup).stages[0].repeated;
  setup.usable = 0.45;
  EXPECT_GT(complete(run, model, setup).stages[0].repeated, roomy);
}

TEST(Shape, AGeneratorsFirstLayerIsWholeOnEveryTensorRank) {
  MeasuredRun run = gpt_run(0, 2, 1, 1, 1, 2);
  run.set = "amp_het_model";
  const ModelShape model = shape_of(run);
  RunSplit split = split_of(2, 1, 1);
  split.stages[0].end = 1;
  const double one = memory_of(model, split, 0).states;
  split.stages[0].tp = 4;
  EXPECT_DOUBLE_EQ(memory_of(model, split, 0).states, one);
}

}  // namespace
}  // namespace braid
