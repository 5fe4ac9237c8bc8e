#include "planner/simulate/stage_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "planner/cost/make_cost_model.h"
#include "planner/search/search.h"
#include "planner/simulate/layer_tensors.h"
#include "planner/simulate/price_plan.h"
#include "planner/simulate/schedule.h"
#include "tests/plan/sample_plan.h"
#include "tests/simulate/priced_plan.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

Bytes sum(const std::vector<Bytes>& list) {
  Bytes all;
  for (const Bytes size : list) all += size;
  return all;
}

TEST(LayerTensors, AddUpToWhatThePlanHolds) {
  PlanDice dice(21);
  for (int i = 0; i < 300; ++i) {
    Plan plan = dice.plan();
    if (i % 2 == 1) plan.precision = Precision::bf16;
    plan = priced(plan);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      Bytes states, saved;
      auto strategy = plan.stages[s].strategies.begin();
      for (const int layer : layers_of(plan.stages[s])) {
        const LayerTensors t = layer_tensors(plan, layer, *strategy++);
        states += sum(t.states) + sum(t.gradients);
        saved += sum(t.saved);
      }
      EXPECT_EQ(states, plan.prediction.stages[s].memory.states());
      EXPECT_EQ(saved, plan.prediction.stages[s].memory.activations);
    }
  }
}

TEST(LayerTensors, ABlockKeepsWhatItsOperatorsKeep) {
  // 16 tokens of width 64 on one device, 8 samples, bf16: x, its mean and deviation, q k v,
  // attention's output and log-sum-exp, the residual, its statistics, pre-activation.
  Plan plan = sample_plan({.stages = 1});
  const Bytes token(128);
  std::vector<Bytes> kept;
  for (const std::int64_t bytes : {128, 8, 256, 128, 32, 128, 8, 256})
    kept.push_back(token * bytes);
  EXPECT_EQ(layer_tensors(plan, 1, {}).saved, kept);
  EXPECT_EQ(layer_tensors(plan, 1, {.recompute = Recompute::full}).saved,
            std::vector<Bytes>{kept.front()});
  const std::vector<Bytes> without = {kept[0], kept[1], kept[2], kept[5], kept[6], kept[7]};
  EXPECT_EQ(layer_tensors(plan, 1, {.recompute = Recompute::selective}).saved, without);
}

bool alone(const Plan& plan, int stage) {
  const bool waits = plan.shape.schedule == ScheduleKind::zero_bubble && plan.shape.stages > 1;
  return std::ranges::all_of(
      plan.stages[static_cast<std::size_t>(stage)].strategies,
      [&](const Strategy& s) { return s.replicas() == 1 && (s.tensor_split() == 1 || !waits); });
}

TEST(StageMemory, AStepLeavesWeightsAndOptimizerAlone) {
  PlanDice dice(22);
  for (int i = 0; i < 150; ++i) {
    const Plan plan = priced(dice.plan());
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      const StagePrediction& p = plan.prediction.stages[static_cast<std::size_t>(stage)];
      const ReplayedMemory memory = stage_reserved(plan, stage);
      EXPECT_FALSE(memory.failed);
      // Groups keep the memory that they have.
      EXPECT_EQ(memory.end.requested, replay(stage_allocations(plan, stage, 1)).end.requested);
      if (alone(plan, stage))
        EXPECT_EQ(memory.end.requested, p.memory.states() - p.memory.gradients);
      else
        EXPECT_GE(memory.end.requested, p.memory.states() - p.memory.gradients);
      EXPECT_LE(memory.peak.requested, memory.peak.allocated);
      EXPECT_LE(memory.peak.allocated, memory.peak.reserved);
      EXPECT_EQ(replay(stage_allocations(plan, stage)).peak, memory.peak);
    }
  }
}

TEST(StageMemory, PeaksHoldEveryMicroBatchInFlight) {
  PlanDice dice(23);
  for (int i = 0; i < 150; ++i) {
    const Plan plan = priced(dice.plan());
    const Schedule schedule = make_schedule(plan.shape);
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      const StagePlan& layers = plan.stages[static_cast<std::size_t>(stage)];
      std::vector<Bytes> per_chunk;
      auto strategy = layers.strategies.begin();
      for (const LayerRange& chunk : layers.chunks) {
        per_chunk.emplace_back();
        for (int layer = chunk.begin; layer < chunk.end; ++layer)
          per_chunk.back() += sum(layer_tensors(plan, layer, *strategy++).saved);
      }
      const StagePrediction& p = plan.prediction.stages[static_cast<std::size_t>(stage)];
      const Bytes held = peak_saved(schedule[static_cast<std::size_t>(stage)], per_chunk);
      EXPECT_GE(stage_reserved(plan, stage).peak.requested,
                p.memory.weights + p.memory.optimizer + held);
    }
  }
}

// The account adds up the worst of every term at once, so tensors one by one need less, if at all
// (an activation's gradient that the account counts with its workspace comes on top).
TEST(StageMemory, RealPlansComeToTheirAccount) {
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  const Model model = read_model(configs / "models/llama2-7b.json");
  const Cluster cluster = read_cluster(configs / "clusters/a100-80g-8.json");
  int stages = 0;
  for (const std::int64_t limit : {18, 40}) {
    for (const Algorithm algorithm : {Algorithm::exact, Algorithm::zero3, Algorithm::pp}) {
      SearchOptions options;
      options.algorithm = algorithm;
      options.global_batch = 64;
      options.memory_limit = Bytes(limit << 30);
      const SearchResult found = search(model, cluster, nullptr, options);
      if (!found.plan) continue;
      for (int stage = 0; stage < found.plan->shape.stages; ++stage) {
        const StagePrediction& p = found.plan->prediction.stages[static_cast<std::size_t>(stage)];
        const AllocatorBytes peak = stage_reserved(*found.plan, stage).peak;
        EXPECT_GT(peak.requested / p.allocated(), 0.9);
        EXPECT_LT(peak.requested / p.allocated(), 1.01);
        // Gradients take blocks that activations have left, and those then need others.
        EXPECT_LT(peak.reserved / p.allocated(), 1.15);
        ++stages;
      }
    }
  }
  EXPECT_GT(stages, 8);
}

}  // namespace
}  // namespace braid
