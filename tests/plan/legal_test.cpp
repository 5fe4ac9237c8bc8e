// The rules that search and verify share.

#include "planner/plan/legal.h"

#include <gtest/gtest.h>

#include "tests/plan/sample_plan.h"

namespace braid {
namespace {

using enum StrategyFault;

LayerShape block() { return sample_model().types[1].shape; }  // 8 heads, 4 kv, ffn 128, 16 tokens

LayerShape mixture() {
  LayerShape shape = block();
  shape.experts = 8;
  shape.experts_per_token = 2;
  return shape;
}

Strategy square(int side, int tp = 0) {
  return {
      .tp = tp == 0 ? side * side : tp, .tp_kind = TensorKind::spatial_temporal, .square = side};
}

struct Case {
  const char* fact;
  LayerShape layer;
  Strategy strategy;
  std::optional<StrategyFault> fault;
};

std::vector<Case> cases() {
  constexpr auto kUlysses = TensorKind::ulysses;
  LayerShape imported;  // a profile tells no heads, and a width that only counts parameters
  imported.tokens = 64;
  imported.hidden = 64;
  imported.ffn = 127;
  LayerShape merge;
  merge.kind = LayerKind::merge;
  merge.tokens = 16;
  merge.hidden = 8;
  merge.merge_outputs = 16;
  LayerShape cross = block();
  cross.cross_tokens = 6;
  LayerShape bidirectional = block();
  bidirectional.attention = AttentionKind::bidirectional;
  bidirectional.tokens = 2;
  LayerShape causal = block();
  causal.tokens = 2;
  LayerShape windows = block();
  windows.attention = AttentionKind::window;
  LayerShape classifier = sample_model().types.back().shape;
  classifier.pooled = true;
  LayerShape class_token = classifier;
  class_token.class_token = true;
  LayerShape shared = mixture();
  shared.shared_ffn = 127;
  const LayerShape embedding = sample_model().types[0].shape;
  return {
      {"one device", block(), {}, {}},
      {"as many ranks as key-value heads", block(), {.tp = 4}, {}},
      {"replicated key-value heads", block(), {.tp = 8}, {}},
      {"Ulysses moves whole key-value heads", block(), {.tp = 4, .tp_kind = kUlysses}, {}},
      {"and does not replicate them", block(), {.tp = 8, .tp_kind = kUlysses}, tp_fits_kv_heads},
      {"more ranks than heads", block(), {.tp = 16}, tp_divides_heads},
      {"an imported layer has no heads or matrices to cut", imported, {.tp = 64}, {}},
      {"a vocabulary is padded", embedding, {.tp = 16}, {}},
      {"Ulysses leaves the feed-forward whole",
       [] {
         LayerShape l = block();
         l.ffn = 127;
         return l;
       }(),
       {.tp = 4, .tp_kind = kUlysses},
       {}},
      {"a shared expert is cut too", shared, {.tp = 2}, tp_divides_width},
      {"tokens by context and tensor", block(), {.tp = 4, .cp = 4}, {}},
      {"more slices than tokens", block(), {.tp = 4, .cp = 8}, split_divides_tokens},
      {"an encoder's tokens are cut as well", cross, {.tp = 4}, split_divides_tokens},
      {"a merge hands on a quarter", merge, {.tp = 4}, {}},
      {"which must be cut as well", merge, {.tp = 8}, split_divides_tokens},
      {"a causal ring works in pairs of blocks", causal, {.cp = 2}, ring_halves_tokens},
      {"another ring does not", bidirectional, {.cp = 2}, {}},
      {"windows have no ring", windows, {.cp = 2}, cp_needs_sequence},
      {"their heads are cut", windows, {.tp = 2}, {}},
      {"nor has a merge", merge, {.cp = 2}, cp_needs_sequence},
      {"nor a mean of all tokens", classifier, {.cp = 2}, cp_needs_sequence},
      {"a class token is on one rank of a ring", class_token, {.cp = 2}, {}},
      {"twelve samples over three replicas", block(), {.dp = 3}, {}},
      {"twelve samples over eight replicas", block(), {.dp = 8}, dp_divides_micro_batch},
      {"no replica at all", block(), {.dp = 0}, dp_divides_micro_batch},
      {"experts over replicas", mixture(), {.dp = 4, .ep = 4}, {}},
      {"a layer without experts", block(), {.dp = 4, .ep = 4}, ep_needs_experts},
      {"eight experts over three", mixture(), {.dp = 3, .ep = 3}, ep_divides_experts},
      {"experts over more than the replicas", mixture(), {.dp = 2, .ep = 4}, ep_divides_dp},
      {"no expert rank at all", mixture(), {.ep = 0}, ep_divides_experts},
      {"ZeRO over context ranks", block(), {.cp = 2, .zero = Zero::parameters}, {}},
      {"ZeRO over Ulysses ranks",
       block(),
       {.tp = 2, .tp_kind = kUlysses, .zero = Zero::optimizer},
       {}},
      {"ZeRO over tensor ranks", block(), {.tp = 2, .zero = Zero::optimizer}, zero_needs_replicas},
      {"a recomputed merge", merge, {.recompute = Recompute::full}, {}},
      {"a recomputed embedding", embedding, {.recompute = Recompute::full}, recompute_needs_block},
      {"a square", block(), square(2), {}},
      {"two squares", block(), square(2, 8), {}},
      {"four squares, more than key-value heads", block(), square(2, 16), square_divides_heads},
      {"a side of three", block(), square(3, 16), square_side},
      {"a side whose square overflows", block(), square(1 << 20, 16), square_side},
      {"half a square", block(), square(2, 2), square_divides_tp},
      {"a side of four", block(), square(4), {}},
      {"a square of another kind", block(), {.tp = 4, .square = 2}, square_needs_its_kind},
      {"a variant of another kind",
       block(),
       {.variant = SquareVariant::paper},
       square_needs_its_kind},
      {"an embedding has no square", embedding, square(2), square_needs_dense_block},
      {"nor has a mixture", mixture(), square(2), square_needs_dense_block},
      {"nor cross-attention", cross, square(2), square_needs_dense_block},
      {"an odd width",
       [] {
         LayerShape l = block();
         l.ffn = 127;
         return l;
       }(),
       square(2), square_divides_width},
      {"rows of samples leave the tokens whole",
       [] {
         LayerShape l = block();
         l.tokens = 15;
         return l;
       }(),
       square(2),
       {}},
      {"two squares cut them",
       [] {
         LayerShape l = block();
         l.tokens = 15;
         return l;
       }(),
       square(2, 8), square_divides_tokens},
      {"twelve samples over eight rows leave the tokens to them: pairs of blocks",
       [] {
         LayerShape l = block();
         l.tokens = 4;
         return l;
       }(),
       {.tp = 16, .tp_kind = TensorKind::spatial_temporal, .dp = 2, .square = 4},
       square_divides_tokens},
      {"published squares stand alone", block(),
       [] {
         Strategy s = square(2, 8);
         s.variant = SquareVariant::paper;
         return s;
       }(),
       paper_is_one_square},
      {"ZeRO over the ranks of a square",
       block(),
       {.tp = 4, .tp_kind = TensorKind::spatial_temporal, .zero = Zero::optimizer, .square = 2},
       zero_needs_replicas},
      {"tp of six", block(), {.tp = 6}, tp_power_of_two},
      {"tp of zero", block(), {.tp = 0}, tp_power_of_two},
      {"cp of six", block(), {.cp = 6}, cp_power_of_two},
  };
}

TEST(StrategyFault, IsTheFirstBrokenRule) {
  constexpr std::int64_t kMicroBatch = 12;
  for (const Case& c : cases()) {
    const auto fault = strategy_fault(c.layer, c.strategy, kMicroBatch);
    EXPECT_EQ(fault, c.fault) << c.fact;
    if (!fault) continue;
    const Mistake words = describe(*fault, c.layer, c.strategy, kMicroBatch);
    EXPECT_FALSE(words.what.empty() || words.where.empty() || words.fix.empty()) << c.fact;
  }
}

TEST(StrategyFault, NamesWhatWouldBeLegal) {
  LayerShape layer = block();
  layer.heads = 12;
  layer.kv_heads = 2;
  const Strategy strategy{.tp = 8};
  ASSERT_EQ(strategy_fault(layer, strategy, 1), tp_divides_heads);
  const Mistake words = describe(tp_divides_heads, layer, strategy, 1);
  EXPECT_EQ(words.what, "tp=8 does not divide the 12 attention heads");
  EXPECT_EQ(words.where, "tp");
  EXPECT_EQ(words.fix, "choose tp from 1, 2, 4");

  const Mistake tokens = describe(split_divides_tokens, block(), {.tp = 4, .cp = 8}, 1);
  EXPECT_EQ(tokens.what, "tp·cp=32 does not divide 16 tokens");
  EXPECT_EQ(tokens.fix, "make tp·cp one of 1, 2, 4, 8, 16");
}

}  // namespace
}  // namespace braid
