// Galvatron's formulas on a profile of round numbers, worked out by hand. A layer has 64 MB of fp32
// parameters and takes 2 ms a sample; half precision halves volumes; 2 MB cross between layers.

#include "planner/cost/galvatron_cost.h"

#include <gtest/gtest.h>

#include "planner/core/error.h"

namespace braid {
namespace {

constexpr double kMegabyte = 1048576;
constexpr double kTolerance = 1e-9;
constexpr int kDevices = 8;

Model model() {
  LayerShape block{.kind = LayerKind::block, .tokens = 1024, .hidden = 1024};
  LayerShape embedding{.kind = LayerKind::embedding, .tokens = 1024, .hidden = 1024};
  LayerShape head{.kind = LayerKind::head, .tokens = 1024, .hidden = 1024};
  return {.name = "round numbers",
          .family = "braid",
          .types = {{"embedding", embedding}, {"decoder", block}, {"head", head}},
          .layers = {0, 1, 1, 1, 1, 2},
          .sequence = 1024};
}

BandwidthSample bandwidth(Collective op, int ranks, int stride, double megabytes_per_ms) {
  return {op, ranks, stride, BytesPerSecond(megabytes_per_ms * kMegabyte * 1e3)};
}

CollectiveSample timed(Collective op, int megabytes, double ms) {
  return {op, 2, 1, Bytes(std::int64_t{megabytes} << 20), Seconds(ms * 1e-3)};
}

MeasuredLayer measured(const std::string& type, double forward_ms) {
  ComputeSample sample;
  sample.sequence = 1024;
  sample.forward = Seconds(forward_ms * 1e-3);
  MeasuredLayer layer;
  layer.type = type;
  layer.compute = {sample};
  return layer;
}

MeasuredOutside outside(double states, double activations) {
  return {{{1, states * kMegabyte}}, {{1, activations * kMegabyte}}};
}

Profile profile() {
  Profile p;
  p.name = "round numbers";
  p.overlap_slowdown = 1.25;
  MeasuredLayer decoder = measured("decoder", 2);
  decoder.parameter_bytes = 64 * kMegabyte;
  decoder.saved = {{1, 100 * kMegabyte}, {2, 60 * kMegabyte}};
  decoder.saved_full = 10 * kMegabyte;
  p.layers = {decoder, measured("outside", 4)};
  p.only_stage = outside(400, 50);
  p.first_stage = outside(200, 20);
  p.last_stage = outside(200, 40);
  p.bandwidths = {
      bandwidth(Collective::all_reduce, 8, 1, 160), bandwidth(Collective::all_reduce, 4, 1, 160),
      bandwidth(Collective::all_reduce, 4, 2, 80), bandwidth(Collective::all_reduce, 2, 1, 160),
      bandwidth(Collective::point_to_point, 2, 4, 16)};
  p.collectives = {timed(Collective::all_reduce, 2, 0.3), timed(Collective::all_reduce, 4, 0.5),
                   timed(Collective::all_to_all, 2, 0.25), timed(Collective::all_to_all, 4, 0.4)};
  return p;
}

constexpr Strategy kDp8{.dp = 8, .zero = Zero::gradients};
constexpr Strategy kDp8Zero3{.dp = 8, .zero = Zero::parameters};
constexpr Strategy kTp2{.tp = 2, .dp = 4, .zero = Zero::gradients};
constexpr Strategy kUlysses2{
    .tp = 2, .tp_kind = TensorKind::ulysses, .dp = 4, .zero = Zero::gradients};
constexpr Strategy kDp4{.dp = 4, .zero = Zero::gradients};

Strategy with_checkpoint(Strategy s) {
  s.recompute = Recompute::full;
  return s;
}

class GalvatronCostTest : public testing::Test {
 protected:
  const Model model_ = model();
  const Profile profile_ = profile();
  const GalvatronCost cost_{profile_, model_, kDevices};
};

TEST_F(GalvatronCostTest, LayerTimes) {
  struct Case {
    const char* fact;
    Strategy strategy;
    GalvatronTask task;
    double no_sync, sync;
  };
  const Case cases[] = {
      // F = 2, A = 4; V = 2 · 7/8 · 64 / 2 = 56 MB in 0.35 ms, of which a quarter shows.
      {"data parallelism hides its reduction", kDp8, {8, 1, 1}, 6, 6.0875},
      {"ZeRO-3 adds half a reduction", kDp8Zero3, {8, 1, 1}, 6.175, 6.2625},
      // Checkpointing: A = 6.
      {"checkpointing repeats forward", with_checkpoint(kDp8), {8, 1, 1}, 8, 8.0875},
      // b = 2 on half a layer; 6 half all-reduces of 4 MB: 1.5; V = 24 MB at 80 MB/ms: 0.3.
      {"tensor parallelism adds six halves", kTp2, {8, 1, 1}, 7.5, 7.575},
      {"and nine with checkpointing", with_checkpoint(kTp2), {8, 1, 1}, 10.25, 10.325},
      // 4 all-to-alls of 4 MB: 1.6; all 8 devices hold the parameters: 0.35.
      {"Ulysses adds four exchanges", kUlysses2, {8, 1, 1}, 7.6, 7.6875},
      // b = 8 / 2 / 4; 2 · 2 stages · 2 MB / 16 MB/ms over 4 layers: 0.125; V = 48 MB: 0.3.
      {"a pipeline spreads its transfers over the layers", kDp4, {8, 2, 2}, 6.125, 6.2},
  };
  for (const Case& c : cases) {
    const GalvatronPrice price = cost_.layer(0, c.strategy, c.task);
    EXPECT_NEAR(price.no_sync, c.no_sync, kTolerance) << c.fact;
    EXPECT_NEAR(price.sync, c.sync, kTolerance) << c.fact;
  }
}

TEST_F(GalvatronCostTest, SizesBetweenMeasuredOnesLieOnALine) {
  // b = 3: 6 MB, beyond 2 MB in 0.3 and 4 MB in 0.5: 0.7. F = 3.
  const GalvatronPrice price = cost_.layer(0, kTp2, {12, 1, 1});
  EXPECT_NEAR(price.no_sync, 3 + 6 + 6 * 0.35, kTolerance);
}

TEST_F(GalvatronCostTest, LayerMemory) {
  struct Case {
    const char* fact;
    Strategy strategy;
    GalvatronTask task;
    int stage;
    double megabytes;
  };
  constexpr Strategy kPlain{.dp = 8};
  const Case cases[] = {
      // Four fp32 copies of 64 MB, and 100 MB a sample.
      {"states and activations add up", kPlain, {8, 1, 1}, 0, 356},
      // z = 1/8 + 0.003.
      {"ZeRO-2: 7/8 z + 1/8", kDp8, {8, 1, 1}, 0, 161},                     // 60.672 + 100
      {"ZeRO-3: z", kDp8Zero3, {8, 1, 1}, 0, 133},                          // 32.768 + 100
      {"accumulating ZeRO-2: 6/8 z + 2/8", kDp8, {16, 2, 1}, 0, 189},       // 88.576 + 100
      {"accumulating ZeRO-3: 7/8 z + 1/8", kDp8Zero3, {16, 2, 1}, 0, 161},  // 60.672 + 100
      {"a checkpoint keeps the input", with_checkpoint(kPlain), {8, 1, 1}, 0, 266},
      // z = 1/4 + 0.003: 128 · (7/8 z + 1/8) = 44.336, and 60 MB for each of two samples.
      {"tensor parallelism splits states", kTp2, {8, 1, 1}, 0, 165},
      // 256 · (6/8 z + 2/8) = 112.576; two micro-batches in flight, one behind.
      {"the first stage holds one micro-batch for each stage", kDp4, {8, 2, 2}, 0, 313},
      {"the last stage holds one", kDp4, {8, 2, 2}, 1, 213},
  };
  for (const Case& c : cases)
    EXPECT_NEAR(cost_.layer_memory(0, c.strategy, c.task, c.stage), c.megabytes, kTolerance)
        << c.fact;
}

TEST_F(GalvatronCostTest, EmbeddingAndHead) {
  // 4 ms and 8 ms; 400 / 4 / 2 MB · 7/8 at 160 MB/ms, half of it beside backward.
  const double reduction = 50 * 0.875 / 160 / 2;
  const GalvatronPrice lone = cost_.outside(kDp8, {8, 1, 1}, 0);
  EXPECT_NEAR(lone.no_sync, 12, kTolerance);
  EXPECT_NEAR(lone.sync, 4 + reduction + (1.25 * 8 - reduction) / 1.25, kTolerance);
  EXPECT_NEAR(cost_.outside(kDp4, {8, 2, 2}, 0).no_sync, 6, kTolerance) << "half on each end";
  EXPECT_NEAR(cost_.outside(kDp4, {8, 2, 2}, 1).no_sync, 6, kTolerance);
  EXPECT_EQ(cost_.outside({.dp = 2}, {8, 4, 4}, 1).no_sync, 0) << "none in the middle";

  EXPECT_NEAR(cost_.outside_memory({.dp = 8}, {8, 1, 1}, 0), 400 + 50 + 1024, kTolerance);
  EXPECT_NEAR(cost_.outside_memory({.dp = 4}, {8, 2, 2}, 0), 200 + 20 * 2 + 1024, kTolerance);
  EXPECT_NEAR(cost_.outside_memory({.dp = 4}, {8, 2, 2}, 1), 200 + 40 + 1024, kTolerance);
  EXPECT_NEAR(cost_.outside_memory({.dp = 2}, {8, 4, 4}, 1), 1024, kTolerance);
}

TEST_F(GalvatronCostTest, BuffersAndChangesOfDegree) {
  EXPECT_NEAR(cost_.sequence_buffer({8, 1, 1}, 2), 4, kTolerance);  // two samples of 2 MB
  EXPECT_EQ(cost_.change(2, 2, {8, 1, 1}), 0);
  // Half of two samples' 2^21 bytes at 160, times the original's factor of 1e-4.
  EXPECT_NEAR(cost_.change(1, 2, {8, 1, 1}), 2097152.0 / 160 * 1e-4, kTolerance);
  EXPECT_EQ(cost_.change(1, 2, {8, 1, 1}), cost_.change(2, 1, {8, 1, 1}));
}

TEST_F(GalvatronCostTest, ANeededFigureThatIsMissingIsNamed) {
  const Strategy tp4{.tp = 4, .dp = 2, .zero = Zero::gradients};
  EXPECT_THROW(cost_.layer(0, tp4, {8, 1, 1}), Error) << "no sweep over four ranks";
  Profile partial = profile();
  partial.last_stage.reset();
  EXPECT_THROW(GalvatronCost(partial, model_, kDevices), Error);
  partial = profile();
  partial.layers.front().saved_full.reset();
  EXPECT_THROW(GalvatronCost(partial, model_, kDevices), Error);
}

TEST(GalvatronIteration, IsTheLargerOfTwoPathsAndALateReduction) {
  struct Case {
    const char* fact;
    std::vector<double> no_sync, sync;
    int micro_batches;
    double ms;
  };
  const Case cases[] = {
      {"one stage works and reduces", {10}, {15}, 3, 30 + 5},
      {"a slow last stage sets the pace", {10, 20}, {12, 25}, 4, 30 + 3 * 20 + 2},
      {"a lone micro-batch passes once", {10, 20}, {12, 25}, 1, 30 + 2},
      // 2/3 and 1/3 of the same ramp of 20 (stage 0) against 10 (the rest), then 3 micro-batches.
      {"a slow first stage sets the pace", {20, 10}, {20, 10}, 4, 20 + 20 * 3},
      {"an early reduction hides", {10, 20}, {10, 29}, 4, 90},
  };
  for (const Case& c : cases)
    EXPECT_NEAR(GalvatronCost::iteration(c.no_sync, c.sync, c.micro_batches), c.ms * 1e-3, 1e-12)
        << c.fact;
}

TEST(GalvatronBudget, FallsOffACliffAboveTwentyGigabytes) {
  const auto megabytes = [](std::int64_t gib) { return GalvatronCost::budget(Bytes(gib << 30)); };
  EXPECT_NEAR(megabytes(8), 8192, kTolerance);
  EXPECT_NEAR(megabytes(20), 20480, kTolerance);
  EXPECT_NEAR(megabytes(24), 24576 * 0.8, kTolerance);
  EXPECT_LT(megabytes(24), megabytes(20));
  EXPECT_NEAR(megabytes(80), 81920 * 0.8, kTolerance);
}

}  // namespace
}  // namespace braid
