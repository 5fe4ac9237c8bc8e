// What a profile's samples of one layer say of splits and sizes that were measured, and of those
// that were not.

#include "planner/cost/measured_layer.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr std::int64_t kTokens = 128;

LayerShape block(std::int64_t tokens = kTokens) {
  LayerShape shape;
  shape.tokens = tokens;
  shape.hidden = 64;
  shape.attention = AttentionKind::causal;
  shape.heads = shape.kv_heads = 8;
  shape.head_dim = 8;
  shape.ffn = 256;
  return shape;
}

ComputeSample sample(double samples, int split, double forward, std::int64_t tokens = kTokens) {
  ComputeSample s;
  s.samples = samples;
  s.sequence = tokens;
  s.split = split;
  s.forward = Seconds(forward);
  s.backward_input = Seconds(10 * forward);
  s.backward_weight = Seconds(100 * forward);
  return s;
}

std::optional<MeasuredTimes> known_from(std::vector<ComputeSample> samples,
                                        const LayerShape& shape = block()) {
  MeasuredLayer layer;
  layer.type = "layer";
  layer.compute = std::move(samples);
  return MeasuredTimes::from(layer, shape);
}

MeasuredTimes times_of(std::vector<ComputeSample> samples, const LayerShape& shape = block()) {
  return known_from(std::move(samples), shape).value();
}

TEST(MeasuredTimes, FollowTheCurveOfTheirSplit) {
  const MeasuredTimes times = times_of({sample(1, 1, 1), sample(4, 1, 7), sample(2, 2, 2.5)});
  const ComputeTimes whole = times({.dp = 8}, 2);
  EXPECT_DOUBLE_EQ(whole.forward, 3) << "a third of the way from 1 to 7";
  EXPECT_DOUBLE_EQ(whole.backward_input, 30);
  EXPECT_DOUBLE_EQ(whole.backward_weight, 300);
  EXPECT_DOUBLE_EQ(times({}, 0.5).forward, 1) << "fewer samples than measured take as long";
  EXPECT_DOUBLE_EQ(times({}, 6).forward, 10.5) << "no latency is below zero: 7/4 a sample";
  EXPECT_DOUBLE_EQ(times({.tp = 2}, 2).forward, 2.5) << "its own split";
}

TEST(MeasuredTimes, ASplitThatWasNotMeasuredTakesItsShareOfTheNearest) {
  ComputeSample ulysses = sample(1, 4, 3);
  ulysses.kind = TensorKind::ulysses;
  ComputeSample ring = sample(1, 1, 5);
  ring.context = 2;
  const MeasuredTimes times = times_of({sample(1, 1, 8), sample(1, 2, 4.5), ulysses, ring});
  struct Case {
    const char* fact;
    Strategy strategy;
    double forward;
  };
  const Case cases[] = {
      {"measured", {.tp = 2}, 4.5},
      {"measured, of its kind", {.tp = 4, .tp_kind = TensorKind::ulysses}, 3},
      {"the other kind at the same degree lies nearer than half the degree", {.tp = 4}, 3},
      {"the other kind again", {.tp = 2, .tp_kind = TensorKind::ulysses}, 4.5},
      {"eight ways take half of four", {.tp = 8, .tp_kind = TensorKind::ulysses}, 1.5},
      {"a ring of two", {.cp = 2}, 5},
      {"a ring of four takes half of two", {.cp = 4}, 2.5},
      {"a ring across tensor parallelism halves its nearest", {.tp = 4, .cp = 2}, 1.5},
  };
  for (const Case& c : cases) EXPECT_DOUBLE_EQ(times(c.strategy, 1).forward, c.forward) << c.fact;
}

TEST(MeasuredTimes, AnotherLengthCountsByItsFlops) {
  const LayerShape longer = block(4 * kTokens);
  const double ratio =
      forward_flops(longer).total().value() / forward_flops(block()).total().value();
  EXPECT_GT(ratio, 4) << "attention grows by more";
  const MeasuredTimes times = times_of({sample(1, 1, 2)}, longer);
  EXPECT_DOUBLE_EQ(times({}, 1).forward, 2 * ratio);
  EXPECT_DOUBLE_EQ(times({}, 1).backward_weight, 200 * ratio);
}

TEST(MeasuredTimes, OfSeveralLengthsTheNearestSpeaksAlone) {
  const MeasuredTimes times =
      times_of({sample(1, 1, 2), sample(1, 1, 70, 16 * kTokens)}, block(2 * kTokens));
  const double ratio =
      forward_flops(block(2 * kTokens)).total().value() / forward_flops(block()).total().value();
  EXPECT_DOUBLE_EQ(times({}, 1).forward, 2 * ratio);
}

TEST(MeasuredTimes, AnEmbeddingWithoutFlopsCountsByItsTokens) {
  const LayerShape embedding{
      .kind = LayerKind::embedding, .tokens = 3 * kTokens, .hidden = 64, .vocab = 100};
  ASSERT_EQ(forward_flops(embedding).total(), Flops());
  EXPECT_DOUBLE_EQ(times_of({sample(1, 1, 2)}, embedding)({}, 1).forward, 6);
}

TEST(MeasuredTimes, RecomputationIsWhatWasMeasuredOrNothing) {
  ComputeSample known = sample(1, 1, 1);
  known.selective = Seconds(0.25);
  known.full = Seconds(1.5);
  const MeasuredTimes times = times_of({known});
  EXPECT_DOUBLE_EQ(times({}, 1).selective, 0.25);
  EXPECT_DOUBLE_EQ(times({}, 2).full, 3);
  EXPECT_DOUBLE_EQ(times({.tp = 2}, 1).full, 0.75);
  EXPECT_EQ(times_of({sample(1, 1, 1)})({}, 1).full, 0) << "an embedding repeats nothing";
}

TEST(MeasuredTimes, WorkspaceIsThatOfTheRecomputation) {
  ComputeSample known = sample(1, 1, 1);
  known.workspace = Bytes(1000);
  known.workspace_full = Bytes(5000);
  const MeasuredTimes times = times_of({known});
  EXPECT_EQ(times.workspace({}, 1), 1000);
  EXPECT_EQ(times.workspace({}, 3), 3000);
  EXPECT_EQ(times.workspace({.tp = 2}, 1), 500);
  EXPECT_EQ(times.workspace({.recompute = Recompute::full}, 1), 5000);
  EXPECT_EQ(times.workspace({.recompute = Recompute::selective}, 1), std::nullopt)
      << "not counted there";
  EXPECT_EQ(times_of({sample(1, 1, 1)}).workspace({}, 1), std::nullopt);
}

TEST(MeasuredTimes, ForwardAloneSaysNothing) {
  ComputeSample forward = sample(1, 1, 1);
  forward.backward_weight.reset();
  EXPECT_FALSE(known_from({forward}));
  EXPECT_FALSE(known_from({}));
  // Beside a sample that has all it is left out.
  const MeasuredTimes times = times_of({forward, sample(2, 1, 9)});
  EXPECT_DOUBLE_EQ(times({}, 1).forward, 9);
}

}  // namespace
}  // namespace braid
