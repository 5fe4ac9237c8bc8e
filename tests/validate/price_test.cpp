// Prices of splits: what must hold whatever the figures of a setup are.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/validate/complete.h"
#include "planner/validate/split.h"
#include "tests/validate/runs.h"

namespace braid {
namespace {

RunSetup setup_for(const char* set) {
  for (const RunSetup& setup : described_setups())
    if (setup.set == set) return setup;
  ADD_FAILURE() << set;
  return {};
}

double seconds_of(const MeasuredRun& run, const RunSetup& setup) {
  const ModelShape model = shape_of(run);
  return price(model, complete(run, model, setup), setup).seconds;
}

TEST(Price, IsNeverBelowThePhysicsBound) {
  const RunSetup setup = setup_for("vtrain_single");
  for (const MeasuredRun& run : gpt_runs()) {
    const ModelShape model = shape_of(run);
    const RunPrediction p = price(model, complete(run, model, setup), setup);
    EXPECT_GT(p.seconds, p.bound) << run.id;
    EXPECT_LT(p.lower, p.seconds);
    EXPECT_GT(p.upper, p.seconds);
  }
}

TEST(Price, ABusyHostSetsAFloor) {
  RunSetup setup = setup_for("vtrain_single");
  const MeasuredRun run = gpt_run(0, 1, 1, 8, 1, 64);
  const double before = seconds_of(run, setup);
  setup.program.host_forward *= 4;
  setup.program.host_backward *= 4;
  const double after = seconds_of(run, setup);
  // Eight micro-batches of twelve layers, launched four times as slowly.
  EXPECT_GT(after, 8 * 12 * (setup.program.host_forward + setup.program.host_backward));
  EXPECT_GT(after, 3 * before);
}

TEST(Price, SlowerLinksNeverHelp) {
  RunSetup setup = setup_for("vtrain_multi");
  MeasuredRun run = gpt_run(0, 4, 4, 8, 1, 64);
  run.set = "vtrain_multi";
  double before = seconds_of(run, setup);
  for (int i = 0; i < 4; ++i) {
    setup.fabric.card /= 3;
    setup.fabric.inside /= 2;
    const double after = seconds_of(run, setup);
    EXPECT_GE(after, before);
    before = after;
  }
}

TEST(Price, TheSlowestDeviceOfAPipelineSetsItsPace) {
  RunSetup fast = setup_for("vtrain_single");
  fast.fabric.node_width = 4;
  fast.fabric.card = 1e12;
  fast.program.host_forward = fast.program.host_backward = 0;
  fast.program.host_batch = fast.program.host_stage = 0;
  RunSetup mixed = fast;
  DeviceModel slow = fast.devices.front();
  slow.peak /= 10;
  slow.bandwidth /= 10;
  slow.kernel *= 10;
  mixed.devices = {fast.devices.front(), slow};
  const MeasuredRun run = gpt_run(0, 1, 2, 4, 4, 256);  // two stages of a node each
  const ModelShape model = shape_of(run);
  const RunSplit split = complete(run, model, fast);
  // The second stage does all of its sixteen micro-batches at a tenth of the speed.
  EXPECT_GT(price(model, split, mixed).seconds, 9 * price(model, split, fast).seconds);
  EXPECT_LT(price(model, split, mixed).seconds, 10 * price(model, split, fast).seconds);
  // So does a slow node that shares a stage with a fast one, whichever comes first.
  const MeasuredRun shared = gpt_run(0, 1, 1, 8, 4, 256);
  const RunSplit one = complete(shared, model, fast);
  EXPECT_GT(price(model, one, mixed).seconds, 9 * price(model, one, fast).seconds);
  std::swap(mixed.devices.front(), mixed.devices.back());
  EXPECT_GT(price(model, one, mixed).seconds, 9 * price(model, one, fast).seconds);
}

// Korthikanti et al. (2022): bytes of activations of one device of their models.
TEST(Memory, FollowsThePublishedFormula) {
  MeasuredRun run;
  run.set = "korthikanti_fig1_mem";
  run.gpu = "A100-80GB-SXM";
  run.hidden = 25600;
  run.layers = 128;
  run.heads = 160;
  run.seq = 2048;
  run.gpus = 512;
  run.tp = 8;
  run.pp = 64;
  run.dp = 1;
  run.micro_batch = 1;
  run.global_batch = 512;
  run.recompute = "none";
  const RunSetup setup = setup_for("megatron_sc21_t1");
  const ModelShape model = shape_of(run);
  const double sbh = 2048.0 * 25600;
  // s·b·h·L·(10 + 24/t + 5·a·s/(h·t)) over a pipeline that holds as many micro-batches as stages.
  EXPECT_DOUBLE_EQ(memory_of(model, complete(run, model, setup), 0).activations,
                   sbh * 128 * (10 + 3 + 5 * 160.0 * 2048 / (25600 * 8)));
  run.recompute = "selective+SP";
  EXPECT_DOUBLE_EQ(memory_of(model, complete(run, model, setup), 0).activations,
                   sbh * 128 * 34 / 8);
  run.recompute = "full";
  EXPECT_DOUBLE_EQ(memory_of(model, complete(run, model, setup), 0).activations, sbh * 128 * 2);
}

TEST(Memory, LaterStagesHoldFewerMicroBatches) {
  const MeasuredRun run = gpt_run(0, 1, 4, 1, 1, 16);  // three layers a stage
  const ModelShape model = shape_of(run);
  const RunSplit split = complete(run, model, setup_for("vtrain_single"));
  const double first = memory_of(model, split, 0).activations;
  EXPECT_DOUBLE_EQ(memory_of(model, split, 1).activations, first * 3 / 4);
  EXPECT_DOUBLE_EQ(memory_of(model, split, 3).activations, first / 4);
}

TEST(Complete, CutsEvenlyAndKeepsTheHeadLast) {
  const MeasuredRun run = gpt_run(0, 1, 5, 1, 1, 8);  // twelve layers on five stages
  const ModelShape model = shape_of(run);
  const RunSplit split = complete(run, model, setup_for("vtrain_single"));
  ASSERT_EQ(split.stages.size(), 5U);
  EXPECT_EQ(split.stages.front().begin, 0);
  EXPECT_EQ(split.stages.front().end, 4);  // the embedding and three layers
  EXPECT_EQ(split.stages.back().end, 14);
  for (std::size_t i = 1; i < split.stages.size(); ++i)
    EXPECT_EQ(split.stages[i].begin, split.stages[i - 1].end);
}

TEST(Complete, TakesTheFastestMicroBatchWhereNoneIsSaid) {
  const RunSetup setup = setup_for("vtrain_single");
  MeasuredRun run = gpt_run(0, 1, 1, 2, 0, 32);
  const ModelShape model = shape_of(run);
  const double chosen = price(model, complete(run, model, setup), setup).seconds;
  for (const int size : {1, 2, 4, 8, 16}) {
    run.micro_batch = size;
    EXPECT_LE(chosen, price(model, complete(run, model, setup), setup).seconds) << size;
  }
}

// The slowest stage of a split, forward and backward.
double slowest(const ModelShape& model, const RunSplit& split, const RunSetup& setup) {
  double most = 0;
  for (int i = 0; i < static_cast<int>(split.stages.size()); ++i)
    most = std::max(most, stage_seconds(model, split, setup, i));
  return most;
}

TEST(Complete, CutsForSpeedAsWellAsTryingAllCuts) {
  const RunSetup setup = setup_for("vtrain_single");
  MeasuredRun run = gpt_run(0, 0, 3, 0, 2, 16);
  run.layers = 7;
  run.stage_gpus = {1, 2, 1};
  run.gpus = 4;
  const ModelShape model = shape_of(run);
  const RunSplit chosen = complete(run, model, setup);
  double least = std::numeric_limits<double>::infinity();
  const int items = static_cast<int>(model.items.size());
  for (int first = 1; first < items - 1; ++first) {
    for (int second = first + 1; second < items; ++second) {
      RunSplit trial = chosen;
      trial.stages[0].end = trial.stages[1].begin = first;
      trial.stages[1].end = trial.stages[2].begin = second;
      least = std::min(least, slowest(model, trial, setup));
    }
  }
  EXPECT_DOUBLE_EQ(slowest(model, chosen, setup), least);
}

}  // namespace
}  // namespace braid
