// What a run records of its steps, with ranks as threads.

#include "runtime/train/step_trace.h"

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "planner/core/json.h"
#include "runtime/comm/in_process.h"
#include "runtime/parallel/recorder.h"
#include "runtime/train/trainer.h"
#include "runtime/train/worker.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"

namespace braid::train {
namespace {

using parallel::CommSpan;
using parallel::StepRecord;

Plan plan_with(const std::string& model, const Strategy& strategy, int stages = 1) {
  Plan plan = reference_plan(tiny_model(model, 3, 16), 8);
  const int width = strategy.devices();
  plan.cluster = tiny_cluster(stages * width);
  plan.shape = {ScheduleKind::one_f_one_b, stages, 2, 1};
  const int layers = plan.model.num_layers();
  plan.stages.clear();
  for (int s = 0; s < stages; ++s) {
    const LayerRange range{s * layers / stages, (s + 1) * layers / stages};
    StagePlan stage{.chunks = {range}, .strategies = {}};
    for (int layer = range.begin; layer < range.end; ++layer) {
      Strategy own = strategy;
      if (plan.model.type_of(layer).shape.kind != LayerKind::block) own.ep = 1;
      stage.strategies.push_back(own);
    }
    plan.stages.push_back(std::move(stage));
  }
  plan.prediction.stages.resize(static_cast<std::size_t>(stages));
  verify(plan, "test");
  return plan;
}

TrainOptions options_for(const Plan& plan, std::int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.learning_rate.peak = 1e-3;
  options.data = synthetic(plan.model.types.front().shape.vocab, 1);
  return options;
}

TrainReport train_all(const Plan& plan, const TrainOptions& options) {
  TrainReport report;
  comm::run_in_process(plan.cluster.num_devices(), [&](comm::Group& world) {
    TrainReport mine = train(plan, world, options);
    if (world.rank() == 0) report = std::move(mine);
  });
  return report;
}

// One recorded step of every rank. `before` runs on each rank ahead of the step's update.
std::vector<StepRecord> record(const Plan& plan, const std::function<void(int rank)>& feed = {}) {
  std::vector<StepRecord> records(static_cast<std::size_t>(plan.cluster.num_devices()));
  comm::run_in_process(plan.cluster.num_devices(), [&](comm::Group& world) {
    const at::NoGradGuard no_grad;
    WorkerOptions options;
    options.numerics = numerics_for(plan, RunPrecision::plan, at::kCPU);
    const SampleSource samples{.read =
                                   [&](std::int64_t sample, std::span<std::int64_t> inputs,
                                       std::span<std::int64_t> labels) {
                                     if (feed) feed(world.rank());
                                     std::ranges::fill(inputs, sample % 7);
                                     std::ranges::fill(labels, (sample + 1) % 7);
                                   },
                               .ignores_labels = false};
    Worker worker(plan, world, options, samples);
    parallel::Recorder recorder(at::kCPU);
    world.barrier("start");
    recorder.begin_step();
    worker.step(0, 1e-3);
    recorder.end_step();
    records[static_cast<std::size_t>(world.rank())] = recorder.steps().front();
  });
  return records;
}

std::map<CommKind, std::set<std::string>> operations_of(const StepRecord& record) {
  std::map<CommKind, std::set<std::string>> kinds;
  for (const CommSpan& span : record.comm) kinds[span.kind].insert(span.operation);
  return kinds;
}

TEST(StepTrace, KindsFollowFromTheStrategy) {
  struct Case {
    const char* fact;
    const char* model;
    Strategy strategy;
    int stages;
    std::map<CommKind, std::string> expect;  // one of the operations of each kind
  };
  const Case cases[] = {
      // The ranks of a tensor group see other tokens at their norms, whose gradients add up.
      {"megatron",
       "llama",
       {.tp = 2},
       1,
       {{CommKind::tensor, "gather tokens"}, {CommKind::reduce, "share blocks.1"}}},
      {"ulysses",
       "llama",
       {.tp = 2, .tp_kind = TensorKind::ulysses},
       1,
       {{CommKind::tensor, "tokens to heads"}, {CommKind::reduce, "reduce blocks.1"}}},
      {"a ring",
       "llama",
       {.cp = 2},
       1,
       {{CommKind::context, "ring"}, {CommKind::reduce, "reduce blocks.1"}}},
      {"experts",
       "mixtral",
       {.dp = 2, .ep = 2},
       1,
       {{CommKind::expert, "to experts"}, {CommKind::reduce, "reduce blocks.1"}}},
      {"zero3",
       "llama",
       {.dp = 2, .zero = Zero::parameters},
       1,
       {{CommKind::gather, "gather blocks.1"}, {CommKind::reduce, "scatter blocks.1"}}},
      {"zero1",
       "llama",
       {.dp = 2, .zero = Zero::optimizer},
       1,
       {{CommKind::gather, "publish blocks.1"}, {CommKind::reduce, "reduce blocks.1"}}},
      {"a pipeline", "llama", {}, 2, {{CommKind::transfer, "activation"}}},
      {"a tied table",
       "llama_tied",
       {},
       2,
       {{CommKind::transfer, "gradient"},
        {CommKind::gather, "tied weights"},
        {CommKind::reduce, "tied gradients"}}},
  };
  for (const Case& c : cases) {
    const auto kinds = operations_of(record(plan_with(c.model, c.strategy, c.stages)).front());
    std::set<CommKind> found, expected = {CommKind::other};
    for (const auto& [kind, operations] : kinds) found.insert(kind);
    for (const auto& [kind, operation] : c.expect) {
      expected.insert(kind);
      ASSERT_TRUE(kinds.contains(kind)) << c.fact << ": " << name_of(kind);
      EXPECT_TRUE(kinds.at(kind).contains(operation)) << c.fact << ": " << operation;
    }
    EXPECT_EQ(found, expected) << c.fact;
  }
}

TEST(StepTrace, LayersOfDifferentLayoutRedistribute) {
  Plan plan = plan_with("llama", {.dp = 2});
  plan.stages.front().strategies[2] = {.tp = 2};
  verify(plan, "test");
  const StepRecord step = record(plan).front();
  EXPECT_TRUE(operations_of(step).contains(CommKind::redistribute));
  EXPECT_GT(parallel::terms_of(step, 0, {}).redistribute.exposed, Seconds(0));
}

TEST(StepTrace, EveryLayerAndMicroBatchIsThereInEachDirection) {
  std::map<std::tuple<std::string, int, parallel::Phase>, int> seen;
  const std::vector<StepRecord> records = record(plan_with("llama", {.dp = 2}));
  for (const parallel::ComputeSpan& span : records.front().compute)
    ++seen[{span.layer, span.micro_batch, span.phase}];
  for (const char* layer : {"embedding", "blocks.0", "blocks.2", "head"})
    for (int m = 0; m < 2; ++m)
      for (const auto phase : {parallel::Phase::forward, parallel::Phase::backward})
        EXPECT_EQ((seen[{layer, m, phase}]), 1) << layer << m << name_of(phase);
  EXPECT_EQ((seen[{"", -1, parallel::Phase::update}]), 1);
}

TEST(StepTrace, ComputeStandsStillForASlowRankAndNotOnIt) {
  constexpr auto kDelay = std::chrono::milliseconds(60);
  const Plan plan = plan_with("llama", {.tp = 2});
  const std::vector<StepRecord> records = record(plan, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(kDelay);
  });
  const StepTerms waits = parallel::terms_of(records[0], 0, {});
  const StepTerms slow = parallel::terms_of(records[1], 1, {});
  // The delay is that of one sample; a micro-batch has four of them.
  EXPECT_GT(waits.tensor.exposed, Seconds(0.2));
  EXPECT_LT(slow.tensor.exposed, waits.tensor.exposed / 2);
  EXPECT_GT(slow.compute, Seconds(0.2));
}

TEST(StepTrace, SpansLieWithinTheStepAndExposureWithinThem) {
  const Plan plan = plan_with("llama", {.cp = 2, .dp = 2, .zero = Zero::parameters});
  for (const StepRecord& step : record(plan)) {
    ASSERT_FALSE(step.comm.empty());
    for (const CommSpan& span : step.comm) {
      EXPECT_GE(span.time.begin, step.time.begin);
      EXPECT_LE(span.time.end, step.time.end);
      Seconds exposed;
      for (const parallel::Interval& wait : span.exposed) {
        EXPECT_GE(wait.begin, span.time.begin) << span.operation;
        EXPECT_LE(wait.end, span.time.end) << span.operation;
        exposed += wait.length();
      }
      EXPECT_LE(exposed, span.time.length() + Seconds(1e-12)) << span.operation;
    }
    EXPECT_NEAR(parallel::terms_of(step, 0, {}).step() / step.time.length(), 1, 1e-9);
  }
}

TEST(StepTrace, TermsOfARunSumToItsRecordedSteps) {
  const Plan plan = plan_with("llama", {.dp = 2}, 2);
  const TrainReport report = train_all(plan, options_for(plan, 5));
  ASSERT_EQ(report.steps.size(), 5U);
  ASSERT_EQ(report.terms.size(), 2U);
  const Seconds recorded = (report.steps[3] + report.steps[4]) / 2.0;
  for (const StepTerms& terms : report.terms) {
    EXPECT_GT(terms.compute, Seconds(0));
    EXPECT_GT(terms.update, Seconds(0));
    EXPECT_NEAR(terms.step().value(), recorded.value(), 0.5 * recorded.value());
  }
}

TEST(StepTrace, NothingIsRecordedOfALoneStepOrWhenNobodyAsks) {
  const Plan plan = plan_with("llama", {.dp = 2});
  EXPECT_TRUE(train_all(plan, options_for(plan, 1)).terms.empty());
  TrainOptions silent = options_for(plan, 4);
  silent.recorded_steps = 0;
  EXPECT_TRUE(train_all(plan, silent).terms.empty());
}

TEST(StepTrace, TheFileHoldsAProcessForEachRankAndTracksWithoutOverlap) {
  const ScratchFolder folder;
  const Plan plan = plan_with("llama", {.dp = 2, .zero = Zero::parameters}, 2);
  TrainOptions options = options_for(plan, 3);
  options.trace = folder / "trace.json";
  train_all(plan, options);
  const Json trace = read_json(folder / "trace.json");
  std::set<std::string> processes, names;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") processes.insert(event.at("args").at("name"));
    if (event.at("ph") != "X") continue;
    names.insert(event.at("name"));
    const double start = event.at("ts");
    tracks[{event.at("pid"), event.at("tid")}].emplace_back(start,
                                                            start + event.at("dur").get<double>());
  }
  EXPECT_EQ(processes, (std::set<std::string>{"rank 0 stage 0", "rank 1 stage 0", "rank 2 stage 1",
                                              "rank 3 stage 1"}));
  for (const char* name : {"blocks.1 F1", "blocks.1 B0", "blocks.1 gather", "blocks.1 reduce",
                           "send act 1", "receive grad 0", "update"})
    EXPECT_TRUE(names.contains(name)) << name;
  for (auto& [track, slices] : tracks) {
    std::sort(slices.begin(), slices.end());
    for (std::size_t i = 1; i < slices.size(); ++i)
      EXPECT_GE(slices[i].first, slices[i - 1].second - 1e-3) << track.first << " " << track.second;
  }
}

}  // namespace
}  // namespace braid::train
