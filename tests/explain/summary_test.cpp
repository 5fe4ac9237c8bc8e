#include "planner/explain/summary.h"

#include <gtest/gtest.h>

#include "tests/explain/example_plan.h"

namespace braid {
namespace {

using namespace literals;

std::map<std::string, double> shares_of(const Plan& plan) {
  std::map<std::string, double> shares;
  for (const TimeShare& share : time_breakdown(plan).shares)
    shares[share.name] = share.time.value();
  return shares;
}

TEST(Summary, TheExampleIsLegalAndTakesTenSeconds) {
  verify(example_plan(), "example");
  EXPECT_DOUBLE_EQ(example_plan().prediction.iteration.value(), 10);
}

TEST(Summary, TimeGoesToComputeTransfersAndBubble) {
  const auto shares = shares_of(example_plan());
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_DOUBLE_EQ(shares.at("compute"), 6);
  EXPECT_DOUBLE_EQ(shares.at("transfers"), 1);
  EXPECT_DOUBLE_EQ(shares.at("bubble"), 3);
}

TEST(Summary, EveryTermHasItsShareAndTheyAddUp) {
  Plan plan = example_plan();
  LayerTime& terms = plan.prediction.stages[1].terms;
  terms = {.forward_compute = 0.5,
           .backward_input_compute = 0.25,
           .backward_weight_compute = 0.25,
           .recompute = 0.5,
           .forward_tensor = 0.125,
           .backward_tensor = 0.125,
           .forward_context = 0.25,
           .backward_context = 0.25,
           .forward_expert = 0.25,
           .backward_expert = 0.25,
           .forward_gather = 0.125,
           .backward_gather = 0.125,
           .reduce = 0.5,
           .regather = 0.25,
           .update = 0.125};
  plan.prediction.stages[1].redistribute = 0.25;
  EXPECT_EQ(time_breakdown(plan).stage, 1) << "6.375 s against 6 s: the busiest";
  const auto shares = shares_of(plan);
  EXPECT_DOUBLE_EQ(shares.at("compute"), 2);
  EXPECT_DOUBLE_EQ(shares.at("recompute"), 1);
  EXPECT_DOUBLE_EQ(shares.at("tensor parallel"), 0.5);
  EXPECT_DOUBLE_EQ(shares.at("context parallel"), 1);
  EXPECT_DOUBLE_EQ(shares.at("expert parallel"), 1);
  EXPECT_DOUBLE_EQ(shares.at("ZeRO gathers"), 0.75);
  EXPECT_DOUBLE_EQ(shares.at("gradient reduce"), 0.5);
  EXPECT_DOUBLE_EQ(shares.at("update"), 0.125);
  EXPECT_DOUBLE_EQ(shares.at("redistribute"), 0.5);
  double sum = 0;
  for (const auto& [name, time] : shares) sum += time;
  EXPECT_NEAR(sum, 10, 1e-12);
}

TEST(Summary, LayersOfOneTypeAndStrategyAreOneRun) {
  const std::vector<LayerRun> runs = layer_runs(example_plan(), 0);
  ASSERT_EQ(runs.size(), 2U);  // embedding, and two blocks
  EXPECT_EQ(runs[0].size(), 1);
  EXPECT_EQ(runs[1].first, 1);
  EXPECT_EQ(runs[1].last, 2);
  EXPECT_EQ(runs[1].strategy.recompute, Recompute::full);
}

TEST(Summary, StagesThatHoldTheSameAreOneGroup) {
  const std::vector<StageGroup> groups = equal_stages(long_plan(16));
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[1].first, 1);
  EXPECT_EQ(groups[1].last, 14);
}

TEST(Summary, PeaksOfAMixedClusterAdd) {
  Cluster cluster = example_plan().cluster;
  cluster.device_types.push_back(cluster.device_types.front());
  cluster.device_types.back().peak_bf16 = FlopsPerSecond(3e12);
  cluster.groups.push_back({2, 1, 4, cluster.between});
  EXPECT_DOUBLE_EQ(cluster_peak(cluster, Precision::bf16).value(), 2 * 1e12 + 8 * 3e12);
}

TEST(Summary, ActivationsOfAllInFlightMicroBatchesCount) {
  const MemoryParts parts = memory_parts(example_plan().prediction.stages[0]);
  EXPECT_EQ(parts.activations, 2_GiB);
  EXPECT_EQ(parts.weights + parts.gradients + parts.optimizer + parts.activations +
                parts.workspace + parts.overhead,
            12_GiB);
}

TEST(Summary, APlanThatDoesNotFitNamesItsFullestStage) {
  Plan plan = example_plan();
  EXPECT_FALSE(misfit(plan).has_value());
  plan.prediction.stages[0].budget = 8_GiB;
  plan.prediction.stages[1].budget = 6_GiB;
  const Infeasible why = misfit(plan).value_or(Infeasible{});
  EXPECT_EQ(why.stage, 1);  // 11 of 6 is worse than 12 of 8
  EXPECT_EQ(why.needed, 11_GiB);
  EXPECT_EQ(why.available, 6_GiB);
}

TEST(Summary, OneLineSaysTheShape) {
  EXPECT_EQ(shape_line(example_plan()), "2 stages · 1f1b · 2 × 2 samples · single recompute-full");
}

}  // namespace
}  // namespace braid
