// What compute hides of a block's collectives under megatron, counted: each takes a second,
// products take as long as a case says. 4 samples of 512 tokens on 4 devices pass in two chunks.

#include <gtest/gtest.h>

#include "planner/cost/braid_model.h"
#include "tests/support/random_plan.h"
#include "tests/support/round_prices.h"

namespace braid {
namespace {

constexpr int kBlock = 1;
constexpr PipelineShape kOneStage{ScheduleKind::one_f_one_b, 1, 2, 1};
constexpr PipelineShape kZeroBubble{ScheduleKind::zero_bubble, 2, 4, 1};

struct Case {
  double compute = 1000;  // seconds of each pass of a block
  double progress = 1;    // of a collective beside compute: how much longer it takes
  std::int64_t tokens = 512;
  PipelineShape shape = kOneStage;
  Recompute recompute = Recompute::none;
};

LayerTime time(Collective op, const Case& c) {
  const Model priced = round_model(c.tokens, 8);
  Profile profile = priced_profile(priced, op, {.call = 1, .byte = 0});
  ComputeSample& block = profile.layers[kBlock].compute[0];
  block.forward = Seconds(c.compute);
  block.backward_input = block.backward_weight = Seconds(c.compute);
  for (const Collective each : {Collective::all_gather, Collective::reduce_scatter})
    profile.overlaps.push_back({each, 4, 1, c.progress});
  const Cluster cluster = tiny_cluster(4 * c.shape.stages);
  const BraidModel cost(priced, cluster, &profile, {});
  const StageSite site{{4 * c.shape.stages, c.shape.stages, MeshOrder::pp_dp_cp_tp}, c.shape, 0, 4};
  return cost.layer(kBlock, {.tp = 4, .recompute = c.recompute}, site).time;
}

struct Expected {
  const char* fact;
  Case of;
  Collective op;
  double forward, backward;  // exposed
  double hidden;
};

TEST(TensorOverlap, LongProductsHideWhatRunsBesideThem) {
  constexpr Collective kGather = Collective::all_gather, kScatter = Collective::reduce_scatter;
  constexpr Case kShort{.tokens = 32}, kWaits{.shape = kZeroBubble},
      kShortWaits{.tokens = 32, .shape = kZeroBubble}, kAgain{.recompute = Recompute::full};
  const Expected cases[] = {
      {"the first chunk of each gather; backward's six hide", {}, kGather, 2, 0, 8},
      {"the last chunk of each scatter; backward's four hide", {}, kScatter, 2, 0, 6},
      {"few tokens pass in one: forward waits for both", kShort, kGather, 2, 0, 4},
      {"and scatters in the way", kShort, kScatter, 2, 0, 2},
      {"gradients wait for each other where weights wait", kShortWaits, kGather, 2, 2, 2},
      {"and so do sums", kShortWaits, kScatter, 2, 2, 0},
      {"in chunks too", kWaits, kGather, 2, 3, 5},
      // Forward's two exposed again, and the feed-forward's gradient: nothing is left to hide it.
      {"recomputation comes first", kAgain, kGather, 2, 4, 8},
      {"with its scatters", kAgain, kScatter, 2, 2, 8},
      {"nothing to compute", {.compute = 0}, kGather, 4, 6, 0},
      {"nothing to compute", {.compute = 0}, kScatter, 4, 4, 0},
  };
  for (const Expected& c : cases) {
    const LayerTime t = time(c.op, c.of);
    EXPECT_NEAR(t.forward_tensor, c.forward, 1e-9) << c.fact;
    EXPECT_NEAR(t.backward_tensor, c.backward, 1e-9) << c.fact;
    EXPECT_NEAR(t.hidden_tensor, c.hidden, 1e-9) << c.fact;
  }
}

TEST(TensorOverlap, WhatMakesNoProgressBesideComputeIsExposed) {
  const LayerTime t = time(Collective::all_gather, {.compute = 1, .progress = kNoProgress});
  EXPECT_NEAR(t.forward_tensor, 4, 0.01);
  EXPECT_NEAR(t.backward_tensor, 6, 0.01);
  EXPECT_NEAR(t.hidden_tensor, 0, 0.01);
}

// By weights a block takes 12 s: 3 for q, k and v, 1 for attention's output, 4 for each matrix of
// the feed-forward, so that 1 s of attention's output hides 1 s of its two scatters.
TEST(TensorOverlap, ProductsHideAsMuchAsTheyTake) {
  const Case whole{.compute = 12};
  Case tenth = whole;
  tenth.compute = 1.2;
  EXPECT_NEAR(time(Collective::reduce_scatter, whole).backward_tensor, 1, 1e-9);
  // 0.1 s of attention's output leave 1.9 s of two; 0.4 s leave 1.6 s.
  EXPECT_NEAR(time(Collective::reduce_scatter, tenth).backward_tensor, 1.9 + 1.6, 1e-9);
}

}  // namespace
}  // namespace braid
