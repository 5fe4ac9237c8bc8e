// One rank of every stage of a plan, played on tensors without memory: what it holds is what the
// planner's closed forms say, to the byte.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "planner/cost/make_cost_model.h"
#include "planner/search/search.h"
#include "planner/simulate/price_plan.h"
#include "planner/simulate/schedule.h"
#include "runtime/comm/dry.h"
#include "runtime/train/worker.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

struct Held {
  Bytes weights, gradients, optimizer;
  Bytes saved;  // for backward, at the worst moment

  bool operator==(const Held&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Held& held) {
  return out << held.weights.value() << " of weights, " << held.gradients.value()
             << " of gradients, " << held.optimizer.value() << " of states, " << held.saved.value()
             << " saved";
}

// What the rank holds after a step.
Held played(const Plan& plan, int device) {
  const at::NoGradGuard no_grad;
  const auto world = comm::dry_group(device, plan.cluster.num_devices());
  train::WorkerOptions options;
  options.numerics =
      parallel::numerics_of(plan.precision, plan.gradient_precision, at::Device(at::kMeta));
  train::Worker worker(plan, *world, options, {});
  worker.step(0, 1e-3);
  const parallel::FlatBuffer::Usage states = worker.model().bytes();
  return {Bytes(states.weights), Bytes(states.gradients), Bytes(states.optimizer),
          Bytes(worker.stage().peak_saved())};
}

// What the planner says of a stage's ranks.
Held predicted(const Plan& plan, const CostModel& cost, int stage) {
  const StagePlan& layers = plan.stages[static_cast<std::size_t>(stage)];
  const StageSite site = site_of(plan, stage);
  LayerMemory sum;
  std::vector<Bytes> per_chunk;
  auto strategy = layers.strategies.begin();
  for (const LayerRange& chunk : layers.chunks) {
    Bytes activations;
    for (int layer = chunk.begin; layer < chunk.end; ++layer) {
      const int type = plan.model.layers[static_cast<std::size_t>(layer)];
      const LayerMemory memory = cost.layer(type, *strategy++, site).memory;
      sum += memory;
      activations += memory.activations;
    }
    per_chunk.push_back(activations);
  }
  const OpList list = make_schedule(plan.shape)[static_cast<std::size_t>(stage)];
  return {sum.weights, sum.gradients, sum.optimizer, peak_saved(list, per_chunk)};
}

// The account that a plan file carries adds up, and where chunks are even so do its activations.
void expect_account(const StagePrediction& stage, const Held& held, bool even_chunks) {
  const Bytes activations = scaled(stage.memory.activations, stage.in_flight);
  EXPECT_EQ(stage.memory.states(), held.weights + held.gradients + held.optimizer);
  if (even_chunks) {
    EXPECT_EQ(activations, held.saved);
  }
  EXPECT_EQ(stage.peak, stage.memory.states() + stage.memory.constants + activations +
                            stage.memory.deferred + stage.messages + stage.memory.workspace +
                            stage.slack + stage.overhead - stage.memory.in_turn);
}

std::string describe(const Plan& plan, int stage) {
  std::string text = plan.model.name + ", " + name_of(plan.precision) + ", " +
                     name_of(plan.shape.schedule) + ", stage " + std::to_string(stage) + " of " +
                     std::to_string(plan.shape.stages) + ":";
  std::string last;
  for (const Strategy& s : plan.stages[static_cast<std::size_t>(stage)].strategies) {
    const std::string next = to_string(s);
    if (next != last) text += " [" + next + "]";
    last = next;
  }
  return text;
}

// Whether the stage's first rank alone has the token of which the head predicts, or predicts of the
// mean of all.
bool first_predicts(const Plan& plan, int stage) {
  const Strategy& s = plan.stages.back().strategies.back();
  const LayerShape& head = plan.model.types.back().shape;
  return stage == plan.shape.stages - 1 && head.pooled &&
         (head.class_token ? s.tp * s.cp > 1 : s.tp_kind == TensorKind::ulysses);
}

// On the given ranks of every stage, counted within it.
void expect_exact(const Plan& plan, const std::set<int>& ranks) {
  const auto cost =
      make_cost_model({.precision = plan.precision, .gradient_precision = plan.gradient_precision},
                      plan.model, plan.cluster, nullptr);
  const Prediction prediction = price_plan(plan, *cost);
  const Mesh mesh = plan.mesh();
  for (int stage = 0; stage < plan.shape.stages; ++stage) {
    SCOPED_TRACE(describe(plan, stage));
    const Held closed = predicted(plan, *cost, stage);
    for (const int local : ranks) {
      Held held = played(plan, parallel::device_at(stage, local, mesh));
      if (local > 0 && first_predicts(plan, stage)) {
        EXPECT_LE(held.saved, closed.saved);
        held.saved = closed.saved;
      }
      EXPECT_EQ(held, closed) << "rank " << local;
    }
    expect_account(prediction.stages[static_cast<std::size_t>(stage)], closed,
                   plan.shape.chunks == 1);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Memory, IsExactForRandomPlansOfEveryArchitecture) {
  std::set<std::string> seen, squares;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Plan plan = PlanDice(seed).plan();
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      plan.precision = precision;
      plan.gradient_precision = seed % 3 == 0 ? precision : Precision::fp32;
      expect_exact(plan, {0, plan.mesh().stage_devices() - 1});
      if (HasFailure()) FAIL() << "seed " << seed;
    }
    seen.insert(plan.model.name);
    for (const std::string& square : squares_in(plan)) squares.insert(square);
  }
  EXPECT_EQ(seen.size(), kTinyModels.size());
  EXPECT_EQ(squares.size(), kAllSquares.size());
}

TEST(Memory, IsExactForSquaresOfSixteen) {
  for (const char* model : {"gpt2", "llama", "qwen3"})
    for (const std::int64_t batch : {1, 4})
      for (const SquareVariant variant : {SquareVariant::plus_minus, SquareVariant::paper})
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          Plan plan = plan_of_sixteen(model, batch, variant, recompute);
          plan.precision = Precision::bf16;
          expect_exact(plan, {0, 6, 15});
        }
}

// What the search finds for real models: the first rank of every stage.
struct Case {
  const char* model;
  const char* cluster;
  std::int64_t global_batch;
  Precision precision = Precision::bf16;
};

class PlannedMemory : public testing::TestWithParam<Case> {};

TEST_P(PlannedMemory, IsExact) {
  const Case& c = GetParam();
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  const auto file = [&](const char* folder, const char* name) {
    return configs / folder / (std::string(name) + ".json");
  };
  SearchOptions options;
  options.global_batch = c.global_batch;
  options.precision = c.precision;
  const SearchResult found = search(read_model(file("models", c.model)),
                                    read_cluster(file("clusters", c.cluster)), nullptr, options);
  ASSERT_TRUE(found.plan.has_value());
  expect_exact(*found.plan, {0});
}

INSTANTIATE_TEST_SUITE_P(
    Configs, PlannedMemory,
    testing::Values(Case{"gpt2", "rtx4090-8", 32, Precision::fp32}, Case{"gpt2", "a100-80g-8", 64},
                    Case{"gpt2-xl", "titan-rtx-1x8", 32, Precision::fp32},
                    Case{"gpt2-xl", "v100-32g-8", 64}, Case{"opt-6.7b", "a100-80g-8", 64},
                    Case{"opt-175b", "h100-16x8", 128}, Case{"llama2-7b", "a100-80g-8", 64},
                    Case{"llama2-7b", "a100-80g-8x8", 128, Precision::fp32},
                    Case{"llama2-13b", "a100-80g-8", 32}, Case{"llama2-70b", "a100-80g-8x8", 64},
                    Case{"llama3-8b", "h100-1x8", 64}, Case{"llama3-70b", "h100-4x8", 32},
                    Case{"llama3-70b", "h200-32x8", 64, Precision::fp32},
                    Case{"llama3-405b", "h100-128x8", 128}, Case{"mistral-7b", "h100-2x8", 64},
                    Case{"qwen2.5-7b", "v100-32g-8x4", 32}, Case{"mixtral-8x7b", "h100-4x8", 64},
                    Case{"mixtral-8x7b", "a100-80g-8x8", 64, Precision::fp32},
                    Case{"bert-huge-32", "titan-rtx-1x8", 32, Precision::fp32},
                    Case{"bert-huge-48", "a100-80g-8", 64},
                    Case{"vit-huge-32", "titan-rtx-1x8", 64, Precision::fp32},
                    Case{"vit-huge-48", "a100-80g-8", 64}, Case{"bloom-7b1", "a100-80g-8", 32},
                    Case{"swin-huge-32", "titan-rtx-1x8", 64, Precision::fp32},
                    Case{"swin-huge-48", "a100-80g-8", 64},
                    Case{"t5-large-32", "titan-rtx-1x8", 32, Precision::fp32},
                    Case{"t5-512-4-48", "a100-80g-8", 64}),
    [](const auto& test) {
      const Case& c = test.param;
      std::string name = std::string(c.model) + "_on_" + c.cluster + "_" + name_of(c.precision);
      std::ranges::replace_if(
          name, [](char letter) { return letter == '-' || letter == '.'; }, '_');
      return name;
    });

}  // namespace
}  // namespace braid
