// Between the halves of a backward that a zero-bubble schedule has split: what the first leaves to
// the second is what the planner's closed forms say, to the byte, and nothing else stays.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "planner/cost/make_cost_model.h"
#include "planner/simulate/price_plan.h"
#include "runtime/comm/dry.h"
#include "runtime/train/worker.h"
#include "tests/support/counted_memory.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

// By how much the bytes alive on a rank grow while it goes backward by input for the first time in
// a step. The step before that has made what stays.
Bytes growth(const Plan& plan, int device) {
  const at::NoGradGuard no_grad;
  const auto world = comm::dry_group(device, plan.cluster.num_devices());
  std::int64_t before = CountedMemory::alive();
  std::optional<Bytes> grown;
  train::WorkerOptions options;
  options.numerics =
      parallel::numerics_of(plan.precision, plan.gradient_precision, at::Device(at::kMeta));
  options.watch = [&](const Op& op) {
    const std::int64_t now = CountedMemory::alive();
    if (op.kind == OpKind::backward_input && !grown) grown = Bytes(now - before);
    before = now;
  };
  train::Worker worker(plan, *world, options, {});
  worker.step(0, 1e-3);
  grown.reset();
  worker.step(1, 1e-3);
  return grown.value();
}

// What does not grow with the tokens: sums of a norm's gradients, those of a bias whose product
// keeps other rows than it needs, and a table of distances in windows. All in fp32.
Bytes sums(const LayerShape& s, const Strategy& strategy) {
  constexpr std::int64_t kFp32 = 4;
  const std::int64_t norm = (s.norm == NormKind::rms_norm ? 1 : 2) * s.hidden;
  switch (s.kind) {
    case LayerKind::embedding:
      return Bytes(s.embedding_norm ? norm * kFp32 : 0);
    case LayerKind::head:
      return Bytes(((s.final_norm ? norm : 0) + (s.head_dense > 0 ? norm : 0)) * kFp32);
    case LayerKind::merge:
      return Bytes(4 * norm * kFp32);
    case LayerKind::block:
      break;
  }
  const int norms = (s.attention != AttentionKind::none) + (s.cross_tokens > 0) + (s.ffn > 0);
  std::int64_t width = (norms + s.final_norm) * norm;
  const bool moved = strategy.variant == SquareVariant::paper;
  const bool gathered = strategy.tp_kind != TensorKind::ulysses && strategy.outer() > 1;
  if (moved || gathered) width += (s.attention_out_bias + s.ffn_bias) * s.hidden;
  if (moved && s.qkv_bias) width += (s.heads + 2 * s.kv_heads) * s.head_dim;
  if (moved && s.ffn_bias) width += (is_gated(s.activation) ? 2 : 1) * s.ffn;
  width /= strategy.square;
  if (s.qk_norm) width += 2 * s.head_dim;
  if (s.attention == AttentionKind::window) {
    const auto reach = 2 * static_cast<std::int64_t>(std::sqrt(s.window)) - 1;
    width += reach * reach * s.heads / strategy.tp;
  }
  return Bytes(width * kFp32);
}

// Decoder blocks of several layouts: each keeps what it looks at in its own.
bool looks_in_several_layouts(const Plan& plan, int stage) {
  const StagePlan& layers = plan.stages[static_cast<std::size_t>(stage)];
  std::vector<ActivationLayout> layouts;
  auto strategy = layers.strategies.begin();
  for (const int layer : layers_of(layers)) {
    const ActivationLayout layout = layout_of(*strategy++);
    const LayerShape& shape = plan.model.type_of(layer).shape;
    if (shape.cross_tokens > 0 || shape.final_norm) layouts.push_back(layout);
  }
  return std::ranges::adjacent_find(layouts, std::not_equal_to<>()) != layouts.end();
}

Bytes expected_growth(const Plan& plan, const CostModel& cost, int stage) {
  const StageSite site = site_of(plan, stage);
  const StagePlan& layers = plan.stages[static_cast<std::size_t>(stage)];
  const auto type_of = [&](int layer) {
    return plan.model.layers[static_cast<std::size_t>(layer)];
  };
  Bytes grown;
  auto strategy = layers.strategies.begin();
  for (const int layer : layers_of(layers)) {
    const LayerMemory memory = cost.layer(type_of(layer), *strategy, site).memory;
    grown += memory.deferred - memory.activations;
    grown += sums(plan.model.type_of(layer).shape, *strategy++);
  }
  // One gradient has come in, another is to go out.
  const LayerRange range = layers.chunks.front();
  if (!site.last()) grown -= cost.message(type_of(range.end - 1), site);
  if (!site.first()) grown += cost.message(type_of(range.begin - 1), site);
  return grown;
}

TEST(WaitingMemory, IsExactForRandomPlansOfEveryArchitecture) {
  std::set<std::string> seen;
  std::set<std::string> squares;  // alone in their stage: plans of several are too small for more
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    Plan plan = PlanDice(seed).plan();
    if (plan.shape.stages == 1 || plan.shape.chunks > 1) continue;
    plan.shape.schedule = ScheduleKind::zero_bubble;
    plan.precision = seed % 2 == 0 ? Precision::fp32 : Precision::bf16;
    const auto cost =
        make_cost_model({.precision = plan.precision}, plan.model, plan.cluster, nullptr);
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      const Bytes grown = growth(plan, parallel::device_at(stage, 0, plan.mesh()));
      const Bytes expected = expected_growth(plan, *cost, stage);
      if (looks_in_several_layouts(plan, stage))
        EXPECT_GE(grown, expected);
      else
        EXPECT_EQ(grown, expected);
      if (HasFailure())
        FAIL() << plan.model.name << ", seed " << seed << ", stage " << stage << ": "
               << grown.value() << " bytes more, not " << expected.value();
    }
    seen.insert(plan.model.name);
    for (const std::string& square : squares_in(plan)) squares.insert(square);
  }
  EXPECT_EQ(seen.size(), kTinyModels.size());
  EXPECT_EQ(squares.size(), 4);
}

}  // namespace
}  // namespace braid
