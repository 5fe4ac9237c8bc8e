// Collectives that a layer is charged for, counted: under prices of a second each, or a second a
// byte. One block of 4 samples on 4 devices: 4 · 32 tokens · 16 channels · 2 bytes.

#include <gtest/gtest.h>

#include "planner/cost/braid_model.h"
#include "tests/support/random_plan.h"
#include "tests/support/round_prices.h"

namespace braid {
namespace {

constexpr int kEmbedding = 0, kBlock = 1, kHead = 2;
constexpr Price kCount{.call = 1, .byte = 0}, kBytes{.call = 0, .byte = 1};

constexpr double kHidden = 4 * 32 * 16 * 2;  // bytes of a micro-batch's activations

class Charged : public testing::Test {
 protected:
  LayerTime time(const Profile& profile, int type, const Strategy& strategy,
                 int micro_batches = 2) const {
    const BraidModel cost(model_, cluster_, &profile, {});
    const StageSite site{
        {4, 1, MeshOrder::pp_dp_cp_tp}, {ScheduleKind::one_f_one_b, 1, micro_batches, 1}, 0, 4};
    return cost.layer(type, strategy, site).time;
  }
  LayerTime time(Collective op, Price price, int type, const Strategy& strategy,
                 int micro_batches = 2) const {
    return time(priced_profile(model_, op, price), type, strategy, micro_batches);
  }
  double parameters_of(int type) const {
    return static_cast<double>(parameters(model_.types[static_cast<std::size_t>(type)].shape));
  }

  Model model_ = round_model(32, 4);
  const Cluster cluster_ = tiny_cluster(4);
};

struct Expected {
  const char* fact;
  int type;
  Strategy strategy;
  Collective op;
  double forward, backward;  // operations
};

TEST_F(Charged, TensorParallelCollectivesAreThoseOfEachPart) {
  constexpr Strategy kMegatron{.tp = 4};
  constexpr Strategy kRepeats{.tp = 4, .recompute = Recompute::full};
  constexpr Strategy kSelective{.tp = 4, .recompute = Recompute::selective};
  constexpr Strategy kUlysses{.tp = 4, .tp_kind = TensorKind::ulysses};
  const Expected cases[] = {
      {"attention and feed-forward gather", kBlock, kMegatron, Collective::all_gather, 2, 4},
      {"and scatter", kBlock, kMegatron, Collective::reduce_scatter, 2, 2},
      {"forward is repeated whole", kBlock, kRepeats, Collective::all_gather, 2, 6},
      {"its scatters too", kBlock, kRepeats, Collective::reduce_scatter, 2, 4},
      {"attention alone talks to nobody", kBlock, kSelective, Collective::all_gather, 2, 4},
      {"no exchange under megatron", kBlock, kMegatron, Collective::all_to_all, 0, 0},
      {"an embedding scatters its sum", kEmbedding, kMegatron, Collective::reduce_scatter, 1, 0},
      {"and gathers its gradient", kEmbedding, kMegatron, Collective::all_gather, 0, 1},
      {"a head gathers", kHead, kMegatron, Collective::all_gather, 1, 0},
      {"and goes on to its gradient", kHead, kMegatron, Collective::reduce_scatter, 1, 0},
      {"the largest logit and the sums", kHead, kMegatron, Collective::all_reduce, 2, 0},
      {"q, k, v and out; their gradients, and out again", kBlock, kUlysses, Collective::all_to_all,
       4, 5},
      {"no gather under Ulysses", kBlock, kUlysses, Collective::all_gather, 0, 0},
      {"a head under Ulysses has its tokens", kHead, kUlysses, Collective::all_to_all, 0, 0},
      {"nor an embedding", kEmbedding, kUlysses, Collective::all_to_all, 0, 0},
  };
  for (const Expected& c : cases) {
    const LayerTime t = time(c.op, kCount, c.type, c.strategy);
    EXPECT_DOUBLE_EQ(t.forward_tensor, c.forward) << c.fact;
    EXPECT_DOUBLE_EQ(t.backward_tensor, c.backward) << c.fact;
  }
}

TEST_F(Charged, MegatronMovesTheActivationsAndUlyssesShares) {
  EXPECT_DOUBLE_EQ(time(Collective::all_gather, kBytes, kBlock, {.tp = 4}).forward_tensor,
                   2 * kHidden);
  EXPECT_DOUBLE_EQ(time(Collective::all_gather, kBytes, kBlock, {.tp = 2, .dp = 2}).forward_tensor,
                   2 * kHidden / 2)
      << "half of the samples each";
  // 8 heads for q and out, 4 for k and v, a quarter of the tokens.
  const Strategy ulysses{.tp = 4, .tp_kind = TensorKind::ulysses};
  const LayerTime t = time(Collective::all_to_all, kBytes, kBlock, ulysses);
  EXPECT_DOUBLE_EQ(t.forward_tensor, (2 * 8 + 2 * 4) * 2 * 4 * 32 / 4.0 * 2);
  EXPECT_DOUBLE_EQ(t.backward_tensor, (3 * 8 + 2 * 4) * 2 * 4 * 32 / 4.0 * 2);
}

// Four products in two steps each. Rows of 64 tokens, half of the 16 channels; columns of q, k and
// v together 32, of attention's output 16, of the feed-forward 64, half of each.
TEST_F(Charged, ASquareWalksBetweenTheStepsOfItsProducts) {
  constexpr Strategy kSquare{.tp = 4, .tp_kind = TensorKind::spatial_temporal, .square = 2};
  const Collective op = Collective::point_to_point;
  const LayerTime calls = time(op, kCount, kBlock, kSquare);
  EXPECT_DOUBLE_EQ(calls.forward_tensor, 4);
  EXPECT_DOUBLE_EQ(calls.backward_tensor, 8);
  EXPECT_DOUBLE_EQ(calls.hidden_tensor, 0) << "nothing is computed beside it";
  const double x = 64 * 8, up = 64 * 32;
  const double forward = (x + 8 * 16) + (x + 8 * 8) + (x + 8 * 32) + (up + 8 * 32);
  const LayerTime bytes = time(op, kBytes, kBlock, kSquare);
  EXPECT_DOUBLE_EQ(bytes.forward_tensor, 2 * forward);
  // 2(q - 1)(TN + TK + NK) / q² in all three phases.
  const double closed = 2 / 4.0 *
                        ((128 * 16 + 128 * 32 + 16 * 32) + (128 * 16 + 128 * 16 + 16 * 16) +
                         2 * (128 * 16 + 128 * 64 + 16 * 64));
  EXPECT_DOUBLE_EQ(bytes.forward_tensor + bytes.backward_tensor, 2 * closed);

  Strategy repeats = kSquare;
  repeats.recompute = Recompute::full;
  EXPECT_DOUBLE_EQ(time(op, kCount, kBlock, repeats).backward_tensor, 8 + 4);
  Strategy paper = kSquare;
  paper.variant = SquareVariant::paper;
  // Around attention's output and the second matrix both sides move; each matrix and each sum of a
  // gradient once more, and every input's gradient.
  EXPECT_DOUBLE_EQ(time(op, kCount, kBlock, paper).forward_tensor, 4 + 4);
  EXPECT_DOUBLE_EQ(time(op, kCount, kBlock, paper).backward_tensor, 8 + 3 * 4 + 4);
}

TEST_F(Charged, ASquareAddsUpItsNormsAlongRows) {
  constexpr Strategy kSquare{.tp = 4, .tp_kind = TensorKind::spatial_temporal, .square = 2};
  EXPECT_DOUBLE_EQ(time(Collective::all_gather, kCount, kBlock, kSquare).forward_tensor, 2);
  EXPECT_DOUBLE_EQ(time(Collective::all_reduce, kCount, kBlock, kSquare).backward_tensor, 2);
  // Mean and deviation of 64 tokens from two ranks, in fp32.
  EXPECT_DOUBLE_EQ(time(Collective::all_gather, kBytes, kBlock, kSquare).forward_tensor,
                   2 * (2 * 2 * 64 * 4));
  model_.types[kBlock].shape.norm = NormKind::rms_norm;
  EXPECT_DOUBLE_EQ(time(Collective::all_reduce, kBytes, kBlock, kSquare).forward_tensor,
                   2 * (64 * 4));
}

TEST_F(Charged, ARingPassesKeysAndValuesAndTheirGradientsHome) {
  const Collective op = Collective::point_to_point;
  const LayerTime none = time(op, kCount, kBlock, {.cp = 4});
  EXPECT_DOUBLE_EQ(none.forward_context, 3);
  EXPECT_DOUBLE_EQ(none.backward_context, 3 + 4);
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    const LayerTime again = time(op, kCount, kBlock, {.cp = 4, .recompute = recompute});
    EXPECT_DOUBLE_EQ(again.backward_context, 3 + 4 + 3) << "attention runs again";
  }
  // 4 samples · 8 tokens · keys and values of 4 heads of 2; gradients in fp32.
  const double block = 4 * 8 * 2 * 4 * 2 * 2;
  const LayerTime bytes = time(op, kBytes, kBlock, {.cp = 4});
  EXPECT_DOUBLE_EQ(bytes.forward_context, 3 * block);
  EXPECT_DOUBLE_EQ(bytes.backward_context, 3 * block + 4 * 2 * block);
  // Both kinds of tensor parallelism leave a rank its heads.
  for (const TensorKind kind : {TensorKind::megatron, TensorKind::ulysses})
    EXPECT_DOUBLE_EQ(time(op, kBytes, kBlock, {.tp = 2, .tp_kind = kind, .cp = 2}).forward_context,
                     block)
        << "twice the tokens, half the heads";
  EXPECT_EQ(time(op, kCount, kEmbedding, {.cp = 4}).forward_context, 0);
}

TEST_F(Charged, HeadsThatRanksShareTravelWithEachOfThem) {
  model_.types[kBlock].shape.kv_heads = 1;
  const Collective op = Collective::point_to_point;
  EXPECT_DOUBLE_EQ(time(op, kBytes, kBlock, {.tp = 2, .cp = 2}).forward_context,
                   4 * 16 * 2 * 1 * 2 * 2);
}

struct Sharding {
  const char* fact;
  Zero zero;
  Collective op;
  double forward, backward, reduce, regather;
};

TEST_F(Charged, ZeroLevelsReplaceTheSumByScattersAndGathers) {
  const Sharding cases[] = {
      {"gradients are summed at the end", Zero::none, Collective::all_reduce, 0, 0, 1, 0},
      {"no scatter", Zero::none, Collective::reduce_scatter, 0, 0, 0, 0},
      {"no gather", Zero::none, Collective::all_gather, 0, 0, 0, 0},
      {"ZeRO-1 scatters instead", Zero::optimizer, Collective::reduce_scatter, 0, 0, 1, 0},
      {"and gathers what was updated", Zero::optimizer, Collective::all_gather, 0, 0, 0, 1},
      {"and sums nothing", Zero::optimizer, Collective::all_reduce, 0, 0, 0, 0},
      {"ZeRO-2 scatters in every pass", Zero::gradients, Collective::reduce_scatter, 0, 1, 0, 0},
      {"and gathers what was updated", Zero::gradients, Collective::all_gather, 0, 0, 0, 1},
      {"ZeRO-3 gathers in both passes", Zero::parameters, Collective::all_gather, 1, 1, 0, 0},
      {"and scatters", Zero::parameters, Collective::reduce_scatter, 0, 1, 0, 0},
  };
  for (const Sharding& c : cases) {
    const LayerTime t = time(c.op, kCount, kBlock, {.dp = 4, .zero = c.zero});
    EXPECT_DOUBLE_EQ(t.forward_gather, c.forward) << c.fact;
    EXPECT_DOUBLE_EQ(t.backward_gather, c.backward) << c.fact;
    EXPECT_DOUBLE_EQ(t.reduce, c.reduce) << c.fact;
    EXPECT_DOUBLE_EQ(t.regather, c.regather) << c.fact;
  }
}

TEST_F(Charged, WeightsTravelInBf16AndGradientsInFp32) {
  const double elements = parameters_of(kBlock);
  const auto bytes = [&](Collective op, Zero zero) {
    return time(op, kBytes, kBlock, {.dp = 4, .zero = zero});
  };
  EXPECT_DOUBLE_EQ(bytes(Collective::all_reduce, Zero::none).reduce, 4 * elements);
  EXPECT_DOUBLE_EQ(bytes(Collective::reduce_scatter, Zero::gradients).backward_gather,
                   4 * elements);
  EXPECT_DOUBLE_EQ(bytes(Collective::all_gather, Zero::parameters).forward_gather, 2 * elements);
  EXPECT_DOUBLE_EQ(bytes(Collective::all_gather, Zero::optimizer).regather, 2 * elements);
}

TEST_F(Charged, TheOnlyMicroBatchScattersAtTheEnd) {
  const Strategy s{.dp = 4, .zero = Zero::gradients};
  const LayerTime one = time(Collective::reduce_scatter, kCount, kBlock, s, 1);
  EXPECT_EQ(one.backward_gather, 0);
  EXPECT_DOUBLE_EQ(one.reduce, 1);
}

using Factor = double Correction::*;
constexpr Factor kFactors[] = {&Correction::compute,  &Correction::tensor,   &Correction::context,
                               &Correction::sharding, &Correction::transfer, &Correction::update};

// One factor of three, or all but this one.
Correction only(Factor factor) {
  Correction correction;
  correction.*factor = 3;
  return correction;
}
Correction all_but(Factor factor) {
  Correction correction;
  for (const Factor each : kFactors)
    if (each != factor) correction.*each = 3;
  return correction;
}

TEST_F(Charged, CorrectionsScaleTheirTermsAlone) {
  struct Case {
    const char* fact;
    Factor factor;
    Collective op;
    Strategy strategy;
    double LayerTime::*term;
  };
  const Strategy split{.tp = 2, .cp = 2}, shards{.dp = 4, .zero = Zero::optimizer};
  const Case cases[] = {
      {"forward", &Correction::compute, Collective::all_gather, split, &LayerTime::forward_compute},
      {"gathers", &Correction::tensor, Collective::all_gather, split, &LayerTime::backward_tensor},
      {"rings", &Correction::context, Collective::point_to_point, split,
       &LayerTime::backward_context},
      {"sums", &Correction::sharding, Collective::all_reduce, {.dp = 4}, &LayerTime::reduce},
      {"ZeRO's gathers", &Correction::sharding, Collective::all_gather, shards,
       &LayerTime::regather},
      {"the optimizer", &Correction::update, Collective::all_gather, shards, &LayerTime::update},
  };
  for (const Case& c : cases) {
    Profile profile = priced_profile(model_, c.op, kCount);
    profile.updates = {{1000, Seconds(1)}};
    for (MeasuredLayer& layer : profile.layers) layer.compute.front().forward = Seconds(1e-9);
    const double once = time(profile, kBlock, c.strategy).*c.term;
    ASSERT_GT(once, 0) << c.fact;
    profile.correction = only(c.factor);
    EXPECT_NEAR(time(profile, kBlock, c.strategy).*c.term, 3 * once, 1e-7 * once) << c.fact;
    profile.correction = all_but(c.factor);
    EXPECT_NEAR(time(profile, kBlock, c.strategy).*c.term, once, 1e-7 * once) << c.fact;
  }
}

TEST_F(Charged, TransfersAndChangesOfLayoutAreCorrectedToo) {
  Profile messages = priced_profile(model_, Collective::point_to_point, kCount);
  messages.correction = only(&Correction::transfer);
  const StageSite pipeline{{4, 2, MeshOrder::pp_dp_cp_tp}, {ScheduleKind::gpipe, 2, 1, 1}, 0, 4};
  EXPECT_EQ(BraidModel(model_, cluster_, &messages, {}).transfer(kBlock, pipeline), Seconds(3));
  Profile exchanges = priced_profile(model_, Collective::all_to_all, kCount);
  exchanges.correction = only(&Correction::tensor);
  const StageSite whole{{4, 1, MeshOrder::pp_dp_cp_tp}, {}, 0, 4};
  EXPECT_EQ(BraidModel(model_, cluster_, &exchanges, {})
                .redistribute(kBlock, {.dp = 4}, {.tp = 4}, whole),
            3);
}

TEST_F(Charged, UpdatesGoAtTheRateOfTheLargestBuffer) {
  Profile profile = priced_profile(model_, Collective::all_reduce, {});
  profile.updates = {{10, Seconds(1)}, {4000, Seconds(2)}, {100, Seconds(1)}};
  const double elements = parameters_of(kBlock);
  EXPECT_DOUBLE_EQ(time(profile, kBlock, {.dp = 4}).update, elements * 2 / 4000);
  const Strategy sharded{.dp = 4, .zero = Zero::optimizer};
  EXPECT_DOUBLE_EQ(time(profile, kBlock, sharded).update, elements / 4 * 2 / 4000);
}

TEST_F(Charged, TheStepsOverheadCountsOnce) {
  Profile profile = priced_profile(model_, Collective::all_reduce, {});
  double without = 0, with = 0;
  for (const int type : model_.layers) without += time(profile, type, {.dp = 4}).update;
  profile.correction.emplace().step_overhead = Seconds(7);
  for (const int type : model_.layers) with += time(profile, type, {.dp = 4}).update;
  EXPECT_NEAR(with - without, 7, 1e-12);
}

TEST_F(Charged, GradientsAreReadOnlyWhereTheyAreAddedTo) {
  Profile profile = priced_profile(model_, Collective::all_reduce, {});
  for (MeasuredLayer& layer : profile.layers)
    for (ComputeSample& sample : layer.compute) sample.backward_weight = Seconds(1);
  profile.gemms.emplace_back();  // what was measured of memory counts in full
  const double once =
      4 * parameters_of(kBlock) / cluster_.device_types.front().memory_bandwidth.value();  // fp32
  const auto weight = [&](Zero zero, int micro_batches) {
    return time(profile, kBlock, {.dp = 4, .zero = zero}, micro_batches).backward_weight_compute;
  };
  EXPECT_DOUBLE_EQ(weight(Zero::none, 1), 1 - once) << "the first micro-batch writes";
  EXPECT_DOUBLE_EQ(weight(Zero::optimizer, 8), 1 - once / 8) << "in the mean of eight";
  EXPECT_DOUBLE_EQ(weight(Zero::gradients, 8), 1 - once + 3 * once / 4)
      << "each one writes, and a quarter is added to what was there";
}

// Seconds of every layer; half of backward is for the weights.
void let_compute(Profile& profile, double forward, double backward) {
  for (MeasuredLayer& layer : profile.layers)
    for (ComputeSample& sample : layer.compute) {
      sample.forward = Seconds(forward);
      sample.backward_input = sample.backward_weight = Seconds(backward / 2);
    }
}

TEST_F(Charged, TensorRanksWaitAsLongAsWasMeasured) {
  Profile profile = priced_profile(model_, Collective::all_gather, {.call = 0.5});
  let_compute(profile, 4, 8);
  const auto more = [&](const Strategy& s) {
    const LayerTime with = time(profile, kBlock, s);
    Profile silent = profile;
    silent.meetings.clear();
    silent.noise.reset();
    const LayerTime without = time(silent, kBlock, s);
    return std::pair(with.forward_tensor - without.forward_tensor,
                     with.backward_tensor - without.backward_tensor);
  };
  profile.noise.emplace().typical = 0.1349;
  EXPECT_NEAR(more({.tp = 4}).first, 4 * 0.1 * 1.029, 1e-12);
  // What was measured takes its place: 0.25 s after each second, 0.4 s after two.
  profile.meetings = {{2, Seconds(1), 0}, {4, Seconds(1), 0.25}, {4, Seconds(2), 0.2}};
  EXPECT_NEAR(more({.tp = 4}).first, 4 * 0.25, 1e-12);
  EXPECT_NEAR(more({.tp = 4}).second, 4 * 0.4, 1e-12);
  EXPECT_NEAR(more({.tp = 2, .dp = 2}).first, 0, 1e-12);
  EXPECT_NEAR(more({.dp = 4}).first, 0, 1e-12) << "no tensor group";
}

TEST_F(Charged, RanksThatShareGradientsWaitForTheSlowestOfTheStage) {
  Profile profile = priced_profile(model_, Collective::all_gather, {.call = 0.5});
  let_compute(profile, 4, 8);
  // The longest stretch counts: it is a whole step that they were apart.
  profile.meetings = {{2, Seconds(1), 0.3}, {2, Seconds(9), 0.1}, {4, Seconds(9), 0.25}};
  const auto more = [&](const Strategy& s) {
    Profile silent = profile;
    silent.meetings.clear();
    return time(profile, kBlock, s).reduce - time(silent, kBlock, s).reduce;
  };
  EXPECT_NEAR(more({.dp = 4}), 0.25 * 24, 1e-12) << "of two micro-batches";
  EXPECT_NEAR(more({.dp = 4, .zero = Zero::parameters}), 0.25 * 24, 1e-12);
  EXPECT_NEAR(more({.tp = 2, .dp = 2}), (0.25 - 0.1) * 24, 1e-12) << "pairs have waited before";
  EXPECT_EQ(more({.tp = 4}), 0) << "no gradients in common";
}

TEST_F(Charged, LayersOfADeviceThatRestsTakeLess) {
  Profile profile = priced_profile(model_, Collective::all_reduce, {});
  for (MeasuredLayer& layer : profile.layers)
    for (ComputeSample& sample : layer.compute) sample.forward = Seconds(1);
  const auto forward = [&](ScheduleKind schedule, int stages, int micro_batches, int chunks) {
    const BraidModel cost(model_, cluster_, &profile, {});
    const StageSite site{{4, stages, MeshOrder::pp_dp_cp_tp},
                         {schedule, stages, micro_batches, chunks},
                         0,
                         4 / stages};
    return cost.layer(kBlock, {.dp = 4 / stages}, site).time.forward_compute;
  };
  EXPECT_EQ(forward(ScheduleKind::one_f_one_b, 4, 8, 1), 1) << "nobody measured it";
  profile.rest_gain = 0.5;
  EXPECT_EQ(forward(ScheduleKind::one_f_one_b, 1, 8, 1), 1) << "one stage never rests";
  EXPECT_DOUBLE_EQ(forward(ScheduleKind::one_f_one_b, 4, 8, 1), 1 - 0.5 * 3 / 11);
  EXPECT_DOUBLE_EQ(forward(ScheduleKind::interleaved, 4, 8, 2), 1 - 0.5 * 1.5 / 9.5);
  EXPECT_DOUBLE_EQ(forward(ScheduleKind::zero_bubble, 4, 8, 1), 1 - 0.5 * 1 / 9);
}

TEST_F(Charged, ACollectiveThatMakesNoProgressDoesNotKeepComputeSlow) {
  // Ten seconds of backward; a gather and a reduction of half a second each, beside each other's
  // micro-batch. The reduction takes its time and slows compute by half; the gather waits.
  Profile profile = priced_profile(model_, Collective::all_gather, {.call = 0.5});
  for (CollectiveSample& sample : profile.collectives)
    if (sample.op == Collective::reduce_scatter) sample.seconds = Seconds(0.5);
  let_compute(profile, 10, 10);
  profile.overlaps = {{Collective::all_gather, 4, 1, kNoProgress},
                      {Collective::reduce_scatter, 4, 1.5, 1}};
  const LayerTime found = time(profile, kBlock, {.dp = 4, .zero = Zero::parameters}, 2);
  const double slowed = 0.5 - 0.5 / 1.5;
  EXPECT_NEAR(found.backward_gather, 0.5 + slowed, 11.0 / kNoProgress);
}

TEST_F(Charged, WhatComputeHidesIsToldApart) {
  // A second of forward, two of backward; gathers of half a second that disturb nobody.
  Profile profile = priced_profile(model_, Collective::all_gather, {.call = 0.5});
  let_compute(profile, 1, 2);
  profile.overlap_slowdown = 1;
  const Strategy s{.dp = 4, .zero = Zero::parameters};
  const LayerTime hidden = time(profile, kBlock, s);
  EXPECT_EQ(hidden.forward_gather, 0);
  EXPECT_EQ(hidden.backward_gather, 0);
  EXPECT_DOUBLE_EQ(hidden.hidden_gather, 1);
  profile.overlaps = {{Collective::all_gather, 4, 1, kNoProgress}};
  const LayerTime shown = time(profile, kBlock, s);
  EXPECT_NEAR(shown.forward_gather, 0.5, 1.0 / kNoProgress);
  EXPECT_NEAR(shown.backward_gather, 0.5, 2.0 / kNoProgress);
  EXPECT_NEAR(shown.hidden_gather, 0, 4.0 / kNoProgress);
}

}  // namespace
}  // namespace braid
