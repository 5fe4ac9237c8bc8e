// Layers in squares of devices train the model of one device, in fp64.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/parallel/square.h"
#include "tests/parallel/sites.h"
#include "tests/support/random_plan.h"
#include "tests/support/training.h"

namespace braid {
namespace {

using train::Outcome;

constexpr int kSteps = 3;
constexpr double kTolerance = 1e-9;

constexpr Strategy kTwo{.tp = 4, .tp_kind = TensorKind::spatial_temporal, .square = 2};
constexpr Strategy kFour{.tp = 16, .tp_kind = TensorKind::spatial_temporal, .square = 4};

constexpr Strategy published(Strategy s) {
  s.variant = SquareVariant::paper;
  return s;
}
constexpr Strategy with(Strategy s, int outer, int cp, int dp, Zero zero = Zero::none,
                        Recompute recompute = Recompute::none) {
  s.tp *= outer;
  s.cp = cp;
  s.dp = dp;
  s.zero = zero;
  s.recompute = recompute;
  return s;
}

struct Case {
  const char* name;
  const char* model;
  std::int64_t batch;
  Strategy block;
  int micro_batches = 1;
};

// Every block under one strategy; embedding and head as many megatron ranks.
Plan plan_of(const Case& c) {
  Plan plan = reference_plan(tiny_model(c.model, 2, 16), c.batch);
  plan.cluster = tiny_cluster(c.block.devices());
  plan.shape.micro_batches = c.micro_batches;
  std::vector<Strategy>& strategies = plan.stages[0].strategies;
  strategies.assign(strategies.size(), c.block);
  strategies.front() = strategies.back() = {
      .tp = c.block.tp, .cp = c.block.cp, .dp = c.block.dp, .zero = c.block.zero};
  return plan;
}

const Outcome& reference(const Model& model, std::int64_t batch) {
  static std::map<std::string, Outcome> known;
  const Plan plan = reference_plan(model, batch);
  const auto [found, fresh] = known.try_emplace(plan_text(plan));
  if (fresh) found->second = train::train_in_process(plan, kSteps);
  return found->second;
}

void expect_same_training(const Plan& plan) {
  ASSERT_NO_THROW(verify(plan, "test"));
  const Outcome& expected = reference(plan.model, plan.global_batch);
  const Outcome got = train::train_in_process(plan, kSteps);
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_TRUE(std::abs(got.losses[i] / expected.losses[i] - 1) <= kTolerance)
        << "loss of step " << i << " is " << got.losses[i] << ", expected " << expected.losses[i];
  for (const auto& [name, value] : expected.parameters) {
    const auto apart = got.parameters.at(name).sub(value).abs().max().item<double>();
    EXPECT_TRUE(apart <= kTolerance) << name << " is " << apart << " apart";
  }
}

class Square : public testing::TestWithParam<Case> {};

TEST_P(Square, TrainsTheModelOfOneDevice) { expect_same_training(plan_of(GetParam())); }

// A batch that the rows do not divide leaves them the tokens.
INSTANTIATE_TEST_SUITE_P(
    Cases, Square,
    testing::Values(
        Case{"rows_of_samples", "llama", 2, kTwo}, Case{"rows_of_tokens", "llama", 1, kTwo},
        Case{"biases", "gpt2", 2, kTwo}, Case{"biases_and_rows_of_tokens", "gpt2", 3, kTwo},
        Case{"norms_of_heads", "qwen3", 2, kTwo}, Case{"biases_of_heads", "qwen2", 1, kTwo},
        Case{"a_window", "mistral", 1, kTwo}, Case{"tied_tables", "llama_tied", 2, kTwo},
        Case{"sixteen_ranks", "llama", 4, kFour},
        Case{"sixteen_ranks_and_rows_of_tokens", "gpt2", 1, kFour},
        Case{"published", "llama", 2, published(kTwo)},
        Case{"published_with_biases", "gpt2", 2, published(kTwo)},
        Case{"published_rows_of_tokens", "llama", 1, published(kTwo)},
        Case{"published_on_sixteen", "gpt2", 4, published(kFour)},
        Case{"published_on_sixteen_by_tokens", "llama", 1, published(kFour)},
        Case{"two_squares", "llama", 2, with(kTwo, 2, 1, 1)},
        Case{"two_squares_with_biases", "gpt2", 1, with(kTwo, 2, 1, 1)},
        Case{"replicas", "llama", 8, with(kTwo, 1, 1, 2), 2},
        Case{"a_ring_of_squares", "llama", 2, with(kTwo, 1, 2, 1)},
        Case{"a_ring_and_rows_of_tokens", "llama", 1, with(kTwo, 1, 2, 1)},
        Case{"zero1", "gpt2", 4, with(kTwo, 1, 1, 2, Zero::optimizer), 2},
        Case{"zero2", "llama", 4, with(kTwo, 1, 1, 2, Zero::gradients), 2},
        Case{"zero3", "llama", 4, with(kTwo, 1, 1, 2, Zero::parameters), 2},
        Case{"zero3_published", "gpt2", 4, with(published(kTwo), 1, 1, 2, Zero::parameters), 2},
        Case{"selective", "llama", 1, with(kTwo, 1, 1, 1, Zero::none, Recompute::selective)},
        Case{"full", "gpt2", 1, with(kTwo, 1, 1, 1, Zero::none, Recompute::full)},
        Case{"full_published", "llama", 2,
             with(published(kTwo), 1, 1, 1, Zero::none, Recompute::full)}),
    [](const auto& test) { return std::string(test.param.name); });

// Every rank begins with another part of the sum: 256, or one of three that bf16 would lose beside
// it.
TEST(Square, AddsUpItsStepsInFp32) {
  const Model model = tiny_model("llama", 1, 16);
  comm::run_in_process(16, [&](comm::Group& world) {
    parallel::Groups groups(world);
    const parallel::Site site = parallel::block_site(model, kFour, groups);
    const at::TensorOptions bf16(at::kBFloat16);
    const at::Tensor x = at::ones({4, 1, 8}, bf16);
    const at::Tensor matrix = at::full({2, 8}, site.diagonal() == 0 ? 32.0 : 3.0 / 32, bf16);
    const at::Tensor y = parallel::linear(x, matrix, {}, parallel::Direction::inward, site).value;
    EXPECT_TRUE(y.eq(258).all().item<bool>()) << "256 + 3 · 0.75, rounded once";
  });
}

// bf16 with fp32 states: rounding differs, not more.
TEST(Square, TrainsInBf16) {
  train::WorkerOptions options;
  options.numerics = parallel::numerics_of(Precision::bf16, Precision::fp32, at::kCPU);
  for (const Strategy& block : {kTwo, published(kTwo)})
    for (const std::int64_t batch : {1, 2}) {
      const Plan plan = plan_of({"bf16", "llama", batch, block});
      const Outcome& expected = reference(plan.model, batch);
      const Outcome got = train::train_in_process(plan, kSteps, options);
      for (std::size_t i = 0; i < expected.losses.size(); ++i)
        EXPECT_NEAR(got.losses[i] / expected.losses[i], 1, 5e-3) << "step " << i;
    }
}

// Squares beside other strategies, in both halves of a pipeline.
class SquarePipeline : public testing::TestWithParam<ScheduleKind> {};

TEST_P(SquarePipeline, MixesWithOtherStrategies) {
  Plan plan = reference_plan(tiny_model("llama", 4, 16), 8);
  plan.cluster = tiny_cluster(8);
  plan.shape = {GetParam(), 2, 4, GetParam() == ScheduleKind::interleaved ? 2 : 1};
  const Strategy dp{.dp = 4}, tp{.tp = 4}, ulysses{.tp = 4, .tp_kind = TensorKind::ulysses};
  plan.global_batch = 16;
  if (plan.shape.chunks == 2) {
    plan.stages = {{.chunks = {{0, 2}, {3, 4}}, .strategies = {dp, kTwo, published(kTwo)}},
                   {.chunks = {{2, 3}, {4, 6}}, .strategies = {kTwo, ulysses, tp}}};
  } else {
    plan.stages = {{.chunks = {{0, 3}}, .strategies = {dp, kTwo, ulysses}},
                   {.chunks = {{3, 6}}, .strategies = {published(kTwo), kTwo, tp}}};
  }
  expect_same_training(plan);
}

INSTANTIATE_TEST_SUITE_P(Schedules, SquarePipeline,
                         testing::Values(ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                         ScheduleKind::interleaved, ScheduleKind::zero_bubble),
                         [](const auto& test) {
                           return test.param == ScheduleKind::one_f_one_b ? "one_f_one_b"
                                                                          : name_of(test.param);
                         });

}  // namespace
}  // namespace braid
