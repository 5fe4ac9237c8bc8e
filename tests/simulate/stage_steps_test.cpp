#include "planner/simulate/stage_steps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/simulate/price_plan.h"
#include "tests/simulate/priced_plan.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

using Chunks = std::vector<std::vector<LayerTensors>>;

// Sizes that add up to a number which shows what they are: one of each digit.
LayerTensors layer() {
  LayerTensors t;
  t.states = {Bytes(100'000)};
  t.gradients = {Bytes(10'000)};
  t.saved = {Bytes(1'000)};
  t.backward_work = {Bytes(100)};
  t.input = t.output = Bytes(10);
  return t;
}

// Under ZeRO-3 on 10 replicas: what is gathered, made and scattered is whole.
LayerTensors sharded() {
  LayerTensors t = layer();
  t.gradients = {Bytes(1'000)};
  t.gathered = Bytes(5'000);
  t.whole_gradient = Bytes(10'000);
  t.share = Bytes(1'000);
  return t;
}

std::int64_t peak(const PipelineShape& shape, int stage, const Chunks& chunks) {
  return peak_of_step(shape, stage, chunks).value();
}

TEST(StageSteps, GradientsAreMadeWhenTheLayersBehindHaveFreedTheirActivations) {
  const PipelineShape one{.micro_batches = 1};
  EXPECT_EQ(peak(one, 0, {{layer()}}), 111'100);
  // The first layer's turn: both gradients, and what it keeps itself.
  EXPECT_EQ(peak(one, 0, {{layer(), layer()}}), 200'000 + 2 * 10'000 + 1'000 + 100);
  // Where activations are larger it is the last one's: the others have no gradient yet.
  LayerTensors large = layer();
  large.saved = {Bytes(50'000)};
  EXPECT_EQ(peak(one, 0, {{large, large}}), 200'000 + 10'000 + 2 * 50'000 + 100);
}

TEST(StageSteps, ASecondMicroBatchFindsAllGradients) {
  EXPECT_EQ(peak({.micro_batches = 2}, 0, {{layer(), layer()}}),
            200'000 + 2 * 10'000 + 2 * 1'000 + 100);
}

TEST(StageSteps, TwoLayersAreWholeUnderZero3AndWhatArrivesStandsBeside) {
  // Three layers, the second one's turn in a later micro-batch: it and the next are gathered, its
  // gradient is made while the one behind it is scattered, shares of all are there, and activations
  // of two.
  EXPECT_EQ(peak({.micro_batches = 2}, 0, {{sharded(), sharded(), sharded()}}),
            300'000 + 10'000 + 20'000 + 3'000 + 2'000 + 2'000 + 10);
}

TEST(StageSteps, WholesOfUnlikeLayersTakeTurnsInTheRoomOfTheLargest) {
  constexpr std::int64_t kMiB = 1 << 20;
  LayerTensors small = layer(), large = layer();
  small.gathered = Bytes(3 * kMiB);
  large.gathered = Bytes(15 * kMiB);
  small.replicas = large.replicas = 2;
  const PipelineShape one{.micro_batches = 1};
  const std::int64_t without = peak(one, 0, {{layer(), layer(), layer()}});
  EXPECT_EQ(peak(one, 0, {{small, large, small}}), without + 32 * kMiB);
  EXPECT_EQ(peak(one, 0, {{small, small, small}}), without + 6 * kMiB);
  large.replicas = 4;  // another group
  EXPECT_EQ(peak(one, 0, {{small, large, small}}), without + 3 * kMiB + 16 * kMiB);
}

TEST(StageSteps, GradientsThatStayStandBesideAllActivations) {
  LayerTensors large = layer();
  large.saved = {Bytes(50'000)};
  large.gradients_stay = true;
  EXPECT_EQ(peak({.micro_batches = 1}, 0, {{large, large}}),
            200'000 + 2 * 10'000 + 2 * 50'000 + 100);
}

TEST(StageSteps, InterleavedChunksWithoutABackwardHaveNoGradients) {
  // Two stages, two micro-batches, two chunks: all four units are forward before a backward.
  const PipelineShape shape{
      .schedule = ScheduleKind::interleaved, .stages = 2, .micro_batches = 2, .chunks = 2};
  LayerTensors large = layer();
  large.saved = {Bytes(50'000)};
  // Both messages of each chunk's forward are still kept, two of them at most.
  EXPECT_EQ(peak(shape, 0, {{large}, {large}}), 200'000 + 4 * 50'000 + 10'000 + 2 * 10 + 100);
}

TEST(StageSteps, AMessageStaysUntilAsManyHaveFollowedAsThereAreStages) {
  const PipelineShape shape{.schedule = ScheduleKind::gpipe, .stages = 2, .micro_batches = 5};
  LayerTensors t = layer();
  EXPECT_EQ(peak(shape, 0, {{t}}), 100'000 + 5 * 1'000 + 10'000 + 2 * 10 + 100);
}

TEST(StageSteps, ZeroBubbleKeepsWhatWaitsInThePlaceOfWhatWasSaved) {
  const PipelineShape shape{.schedule = ScheduleKind::zero_bubble, .stages = 2, .micro_batches = 4};
  LayerTensors t = layer();
  t.deferred = Bytes(500);
  t.weight_work = {Bytes(30)};
  // The last stage: one micro-batch waits while the next goes backward by input; two messages.
  EXPECT_EQ(peak(shape, 1, {{t}}), 100'000 + 10'000 + 1'000 + 500 + 100 + 2 * 10);
  // Where that is more than was saved: two wait when the first is at its weights.
  t.deferred = Bytes(5'000);
  EXPECT_EQ(peak(shape, 1, {{t}}), 100'000 + 10'000 + 2 * 5'000 + 30 + 2 * 10);
}

TEST(StageSteps, WhatATensorGroupGatheredForWeightsThatWaitStaysItsOwn) {
  const PipelineShape shape{.schedule = ScheduleKind::zero_bubble, .stages = 2, .micro_batches = 4};
  LayerTensors t = layer();
  t.deferred = Bytes(500);
  t.waits = {Bytes(200), Bytes(200)};
  // One micro-batch waits, and the group has room for two.
  EXPECT_EQ(peak(shape, 1, {{t}}), 100'000 + 10'000 + 1'000 + 500 + 4 * 200 + 100 + 2 * 10);
}

TEST(StageSteps, AHeadMakesItsGradientsInForward) {
  LayerTensors head = layer();
  head.gradients_in_forward = true;
  head.forward_work = {Bytes(700)};
  EXPECT_EQ(peak({.micro_batches = 1}, 0, {{head}}), 100'000 + 10'000 + 1'000 + 700);
}

// Adds up, as peak_of_step() does, whatever list is played.
class Sum : public TensorListener {
 public:
  int made(Bytes size) override {
    sizes_.push_back(size);
    most = std::max(most, live_ += size);
    return static_cast<int>(sizes_.size()) - 1;
  }
  void freed(int tensor) override { live_ -= sizes_[static_cast<std::size_t>(tensor)]; }

  Bytes most;

 private:
  std::vector<Bytes> sizes_;
  Bytes live_;
};

TEST(StageSteps, AFewMicroBatchesReachThePeakOfMany) {
  PlanDice dice(31);
  for (int i = 0; i < 100; ++i) {
    Plan plan = dice.plan();
    plan.shape.micro_batches = 8 * plan.shape.stages;
    plan.global_batch = std::int64_t{8} * plan.shape.micro_batches;
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      const StagePlan& layers = plan.stages[static_cast<std::size_t>(stage)];
      auto strategy = layers.strategies.begin();
      Chunks chunks;
      for (const LayerRange& range : layers.chunks) {
        chunks.emplace_back();
        for (int layer = range.begin; layer < range.end; ++layer)
          chunks.back().push_back(layer_tensors(plan, layer, *strategy++));
      }
      Sum sum;
      StageSteps steps(plan.shape, stage, chunks, sum);
      steps.step(stage_schedule(plan.shape, stage));
      EXPECT_EQ(peak_of_step(plan.shape, stage, chunks), sum.most) << i << ", stage " << stage;
    }
  }
}

// Layers alike, chunks alike: the parts of the account that the search adds up have room for every
// moment.
TEST(StageSteps, AnEvenPlanNeverNeedsMoreThanItsParts) {
  PlanDice dice(32);
  int stages = 0;
  for (int i = 0; i < 300; ++i) {
    Plan plan = dice.plan();
    if (i % 2 == 1) plan.precision = Precision::bf16;
    const Strategy first = plan.stages[0].strategies[0];
    if (plan.shape.chunks > 1) continue;
    for (StagePlan& stage : plan.stages) std::ranges::fill(stage.strategies, first);
    const auto cost = make_cost_model({.precision = plan.precision,
                                       .gradient_precision = plan.gradient_precision,
                                       .global_batch = plan.global_batch},
                                      plan.model, plan.cluster, nullptr);
    const Prediction prediction = price_plan(plan, *cost);
    for (int s = 0; s < plan.shape.stages; ++s, ++stages) {
      const StageSite site = site_of(plan, s);
      LayerMemory memory;
      Bytes resident;
      for (const int layer : layers_of(plan.stages[static_cast<std::size_t>(s)])) {
        const int type = plan.model.layers[static_cast<std::size_t>(layer)];
        const LayerMemory one = cost->layer(type, first, site).memory;
        memory += one;
        resident += cost->resident(one, site);
      }
      EXPECT_LE(prediction.stages[static_cast<std::size_t>(s)].peak,
                resident + cost->reserved_workspace(memory) + cost->messages(site) +
                    cost->stage_overhead(site))
          << i << ", stage " << s;
    }
  }
  EXPECT_GT(stages, 100);
}

}  // namespace
}  // namespace braid
