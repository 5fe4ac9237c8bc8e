// Whole runs with ranks as threads: what they report, and how each failure ends every rank.

#include "runtime/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "runtime/checkpoint/huggingface.h"
#include "runtime/comm/in_process.h"
#include "runtime/train/agreement.h"
#include "runtime/train/metrics.h"
#include "runtime/train/objective.h"
#include "runtime/train/worker.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"

namespace braid::train {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::chrono::milliseconds kTimeout(2000);

// Data-parallel over all devices.
Plan wide_plan(int devices, int blocks = 2) {
  Plan plan = reference_plan(tiny_model("llama", blocks, 16), 2 * devices);
  plan.cluster = tiny_cluster(devices);
  for (Strategy& strategy : plan.stages.front().strategies) strategy.dp = devices;
  verify(plan, "test");
  return plan;
}

TrainOptions options_for(const Plan& plan, std::int64_t steps = 3) {
  TrainOptions options;
  options.steps = steps;
  options.learning_rate.peak = 3e-3;
  options.data = synthetic(plan.model.types.front().shape.vocab, 1);
  return options;
}

// What each rank's train() threw; a rank that threw nothing adds nothing.
std::vector<std::string> errors_of(int ranks, const std::function<void(comm::Group&)>& rank_main) {
  std::mutex mutex;
  std::vector<std::string> errors;
  comm::run_in_process(
      ranks,
      [&](comm::Group& world) {
        try {
          rank_main(world);
        } catch (const Error& error) {
          const std::scoped_lock lock(mutex);
          errors.push_back(error.mistake().what);
        }
      },
      kTimeout);
  return errors;
}

// Writes the first weights of a seed as a checkpoint; returns their loss in the first step.
double save_weights(const Plan& plan, std::uint64_t seed, const std::filesystem::path& file) {
  double loss = 0;
  comm::run_in_process(1, [&](comm::Group& world) {
    const at::NoGradGuard no_grad;
    WorkerOptions settings;
    settings.numerics = numerics_for(plan, RunPrecision::fp32, at::kCPU);
    settings.seed = seed;
    Worker worker(plan, world, settings,
                  sample_source(plan.model, options_for(plan).data, {.seed = 1}));
    std::vector<checkpoint::WholeParameter> all;
    const models::RankModel& model = worker.model();
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const parallel::Parameters& parameters = model.layers[i]->parameters();
      const std::vector<at::Tensor> values = parameters.local_values();
      for (std::size_t j = 0; j < values.size(); ++j)
        all.push_back({model.indices[i], parameters.specs()[j], values[j]});
    }
    checkpoint::save_huggingface(file, plan.model, all);
    loss = worker.step(0, 0).loss;
  });
  return loss;
}

TEST(Trainer, BeginsWithTheWeightsOfACheckpoint) {
  const Plan plan = wide_plan(1);
  const ScratchFolder folder;
  TrainOptions options = options_for(plan, 1);
  options.precision = RunPrecision::fp32;
  const double expected = save_weights(plan, options.seed + 8, folder / "model.safetensors");
  const auto first_loss = [&] {
    double loss = 0;
    comm::run_in_process(
        1, [&](comm::Group& world) { loss = train(plan, world, options).losses.front(); });
    return loss;
  };
  EXPECT_NE(first_loss(), expected);
  options.weights = folder.path();
  EXPECT_EQ(first_loss(), expected);
  options.weights = folder / "nothing";
  EXPECT_THAT(errors_of(1, [&](comm::Group& world) { train(plan, world, options); }), SizeIs(1));
}

TEST(Trainer, LearnsAndEveryRankReportsTheSame) {
  const Plan plan = wide_plan(2);
  const TrainOptions options = options_for(plan, 20);
  std::mutex mutex;
  std::vector<TrainReport> reports;
  comm::run_in_process(2, [&](comm::Group& world) {
    TrainReport report = train(plan, world, options);
    const std::scoped_lock lock(mutex);
    reports.push_back(std::move(report));
  });
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[0].losses, reports[1].losses);
  ASSERT_THAT(reports[0].losses, SizeIs(20));
  EXPECT_LT(reports[0].losses.back(), 0.95 * reports[0].losses.front());
  EXPECT_GT(reports[0].step, Seconds(0));
}

TEST(Trainer, AllRanksStopAfterTheSameStepWhicheverWasAsked) {
  const Plan plan = wide_plan(3);
  for (const int asked : {0, 2}) {
    std::mutex mutex;
    std::vector<TrainReport> reports;
    comm::run_in_process(3, [&](comm::Group& world) {
      TrainOptions options = options_for(plan, 50);
      int questions = 0;
      // A signal stays, and comes between the third step's question and the fourth's.
      options.stop_signal = [&questions, hears = world.rank() == asked] {
        return hears && ++questions > 3 ? 15 : 0;
      };
      TrainReport report = train(plan, world, options);
      const std::scoped_lock lock(mutex);
      reports.push_back(std::move(report));
    });
    for (const TrainReport& report : reports) {
      EXPECT_EQ(report.stopped_by, 15) << asked;
      EXPECT_THAT(report.steps, SizeIs(4)) << asked;
      EXPECT_THAT(report.terms, SizeIs(1)) << "of the second step";
    }
  }
}

TEST(Trainer, ASignalDuringTheLastStepStopsNothing) {
  const Plan plan = wide_plan(1);
  TrainOptions options = options_for(plan, 1);
  options.stop_signal = [] { return 2; };
  TrainReport report;
  comm::run_in_process(1, [&](comm::Group& world) { report = train(plan, world, options); });
  EXPECT_EQ(report.stopped_by, 0);
  EXPECT_THAT(report.steps, SizeIs(1));
}

TEST(Trainer, CountsWhatTheStatesHold) {
  const Plan plan = wide_plan(2);
  comm::run_in_process(2, [&](comm::Group& world) {
    const TrainReport report = train(plan, world, options_for(plan, 1));
    ASSERT_THAT(report.stages, SizeIs(1));
    const HeldMemory& held = report.stages.front();
    const std::int64_t weights = 4 * parameters(plan.model);  // fp32, whole on both ranks
    EXPECT_EQ(held.weights, Bytes(weights));
    EXPECT_EQ(held.gradients, Bytes(weights));
    EXPECT_EQ(held.optimizer, Bytes(2 * weights));  // two moments, no master
    EXPECT_GT(held.activations, Bytes(0));
    EXPECT_EQ(held.allocated, std::nullopt);
  });
}

TEST(Trainer, WritesALineOfMetricsForEachStep) {
  const ScratchFolder folder;
  const Plan plan = wide_plan(2);
  TrainOptions options = options_for(plan);
  options.metrics = folder / "run";
  std::vector<double> losses;
  comm::run_in_process(2, [&](comm::Group& world) {
    const TrainReport report = train(plan, world, options);
    if (world.rank() == 0) losses = report.losses;
  });
  std::istringstream lines(read_bytes(folder / "run" / kMetricsFile));
  std::vector<double> written;
  for (std::string line; std::getline(lines, line);)
    written.push_back(parse_json(line, "metrics").at("loss").get<double>());
  EXPECT_EQ(written, losses);
}

TEST(Trainer, NamesTheRankWithAnotherPlanOnAllRanks) {
  const Plan plan = wide_plan(4), other = wide_plan(4, 3);
  const auto errors = errors_of(4, [&](comm::Group& world) {
    const Plan& mine = world.rank() == 2 ? other : plan;
    train(mine, world, options_for(mine));
  });
  EXPECT_THAT(errors, AllOf(SizeIs(4),
                            Each(HasSubstr("not the same plan on all 4 ranks: rank 2 differs"))));
}

TEST(Trainer, NamesTheRanksWithOtherOptionsOnAllRanks) {
  const Plan plan = wide_plan(4);
  const auto errors = errors_of(4, [&](comm::Group& world) {
    TrainOptions options = options_for(plan);
    if (world.rank() == 0) options.seed = 2;
    train(plan, world, options);
  });
  EXPECT_THAT(
      errors,
      AllOf(SizeIs(4), Each(HasSubstr("not the same options on all 4 ranks: rank 0 differs"))));
}

TEST(Trainer, NamesTheRankWithOtherDataOnAllRanks) {
  const Plan plan = wide_plan(4);
  const auto errors = errors_of(4, [&](comm::Group& world) {
    TrainOptions options = options_for(plan);
    if (world.rank() == 3) options.data = synthetic(60, 1);
    train(plan, world, options);
  });
  EXPECT_THAT(errors, AllOf(SizeIs(4),
                            Each(HasSubstr("not the same data on all 4 ranks: rank 3 differs"))));
}

TEST(Trainer, ComparesDataByContentNotByName) {
  const Plan plan = wide_plan(2);
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text.push_back(static_cast<char>(i * 7 % 61));
  write_bytes(folder / "a", text);
  write_bytes(folder / "same", text);
  text[1500] = 60;
  write_bytes(folder / "other", text);
  // Bytes as tokens need a vocabulary of 256; the check comes before that one.
  const auto errors_with = [&](const char* name) {
    return errors_of(2, [&](comm::Group& world) {
      TrainOptions options = options_for(plan, 1);
      options.data = text_file(folder / (world.rank() == 1 ? name : "a"), plan.model.sequence);
      train(plan, world, options);
    });
  };
  EXPECT_THAT(errors_with("other"), AllOf(SizeIs(2), Each(HasSubstr("not the same data"))));
  EXPECT_THAT(errors_with("same"), AllOf(SizeIs(2), Each(HasSubstr("tokens up to 255"))));
}

TEST(Trainer, WaitsForARankThatTakesLongerThanTheTimeoutToOpenItsData) {
  const auto open = [](int rank) -> std::shared_ptr<const Dataset> {
    if (rank == 1) std::this_thread::sleep_for(kTimeout + kTimeout / 2);
    return synthetic(8, 1);
  };
  EXPECT_THAT(errors_of(2,
                        [&](comm::Group& world) {
                          const auto data =
                              open_together(world, at::kCPU, [&] { return open(world.rank()); });
                          EXPECT_EQ(data->vocabulary(), 8);
                        }),
              SizeIs(0));
  // Nobody waits for a rank that cannot open its own.
  const auto errors = errors_of(2, [&](comm::Group& world) {
    open_together(world, at::kCPU, [&]() -> std::shared_ptr<const Dataset> {
      if (world.rank() == 1) throw Error({.what = "no such file", .where = "x", .fix = "y"});
      return synthetic(8, 1);
    });
  });
  EXPECT_THAT(errors, testing::Contains("no such file"));
}

TEST(Trainer, NamesTheRankWithAnotherCheckpointBehindItsPath) {
  const Plan plan = wide_plan(2), one = wide_plan(1);
  const ScratchFolder folder;
  for (const char* node : {"node0", "node1", "node2"})
    std::filesystem::create_directory(folder / node);
  save_weights(one, 1, folder / "node0/model.safetensors");
  save_weights(one, 1, folder / "node1/model.safetensors");
  save_weights(one, 2, folder / "node2/model.safetensors");
  const auto errors_with = [&](const char* node) {
    return errors_of(2, [&](comm::Group& world) {
      TrainOptions options = options_for(plan, 1);
      options.weights = folder / (world.rank() == 1 ? node : "node0");
      train(plan, world, options);
    });
  };
  EXPECT_THAT(errors_with("node1"), SizeIs(0));
  EXPECT_THAT(
      errors_with("node2"),
      AllOf(SizeIs(2), Each(HasSubstr("not the same first weights on all 2 ranks: rank 1"))));
}

TEST(Trainer, ReplicasThatPartAreNamed) {
  for (const Zero zero : {Zero::none, Zero::optimizer, Zero::parameters}) {
    Plan plan = wide_plan(3);
    for (Strategy& strategy : plan.stages.front().strategies) strategy.zero = zero;
    const auto errors = errors_of(3, [&](comm::Group& world) {
      const at::NoGradGuard no_grad;
      WorkerOptions settings;
      settings.numerics = numerics_for(plan, RunPrecision::fp32, at::kCPU);
      Worker worker(plan, world, settings,
                    sample_source(plan.model, options_for(plan).data, {.seed = 1}));
      worker.step(0, 1e-3);
      expect_equal_replicas(worker.model(), world, at::kCPU, "a sound run");
      // One bit of one weight, as a link or a memory that fails changes it.
      parallel::FlatBuffer* buffer = worker.model().layers[1]->parameters().buffers().front();
      const at::Tensor& weights = buffer->weights();
      if (world.rank() == 1 && weights.defined()) weights[3].mul_(1.0000002);
      expect_equal_replicas(worker.model(), world, at::kCPU, "step 1");
    });
    // Under ZeRO-3 no two ranks hold the same.
    if (zero == Zero::parameters)
      EXPECT_THAT(errors, SizeIs(0));
    else
      EXPECT_THAT(errors,
                  AllOf(SizeIs(3), Each(HasSubstr("rank 1 and ranks 0, 2 differ in layer"))));
  }
}

// Endless tokens. From sample `first` on the thread that reads them rounds upward: its rank
// computes other bits from the same data, as a device that fails does.
class RoundsUpward : public Dataset {
 public:
  RoundsUpward(std::int64_t vocabulary, std::int64_t first)
      : tokens_(synthetic(vocabulary, 1)), first_(first) {}
  std::int64_t samples() const override { return 0; }
  std::int64_t vocabulary() const override { return tokens_->vocabulary(); }
  std::string describe() const override { return tokens_->describe(); }
  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    if (index >= first_) std::fesetround(FE_UPWARD);
    tokens_->read(index, tokens);
  }

 private:
  std::unique_ptr<Dataset> tokens_;
  std::int64_t first_;
};

TEST(Trainer, ComparesReplicasAsOftenAsAsked) {
  struct Case {
    std::int64_t every;
    const char* noticed;  // empty: never
  };
  const Plan plan = wide_plan(2);
  const std::int64_t second_step = plan.global_batch;  // its first sample
  for (const Case& c : {Case{0, ""}, Case{1, "step 2"}, Case{3, "step 3"}, Case{5, ""}}) {
    const auto errors = errors_of(2, [&](comm::Group& world) {
      TrainOptions options = options_for(plan, 4);
      options.check_replicas = c.every;
      if (world.rank() == 1)
        options.data =
            std::make_shared<RoundsUpward>(plan.model.types.front().shape.vocab, second_step);
      try {
        train(plan, world, options);
      } catch (const Error& error) {
        EXPECT_EQ(error.mistake().where, fmt::format("the weights after {}", c.noticed));
        throw;
      }
    });
    EXPECT_THAT(errors, SizeIs(*c.noticed == '\0' ? 0 : 2)) << c.every;
    EXPECT_THAT(errors, Each(HasSubstr("replicas hold different weights"))) << c.every;
  }
}

// Files that differ where no block of them is sampled pass for one checkpoint until the weights
// themselves are compared.
TEST(Trainer, ComparesTheWeightsThatRanksHaveLoaded) {
  const Plan plan = wide_plan(2, 20), one = wide_plan(1, 20);
  const ScratchFolder folder;
  for (const char* node : {"node0", "node1"}) {
    std::filesystem::create_directory(folder / node);
    save_weights(one, 1, folder.path() / node / "model.safetensors");
  }
  const std::filesystem::path file = folder.path() / "node1/model.safetensors";
  // Behind the header, between two of the 64 blocks of 4096 bytes that are sampled.
  const auto apart = static_cast<std::int64_t>((std::filesystem::file_size(file) - 4096) / 63);
  ASSERT_GT(apart, 2 * 4096);
  const std::int64_t unsampled = 40 * apart + 6000;
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(unsampled);
  const auto byte = static_cast<char>(bytes.get());
  bytes.seekp(unsampled);
  bytes.put(static_cast<char>(byte ^ 1));
  bytes.close();
  const auto errors = errors_of(2, [&](comm::Group& world) {
    TrainOptions options = options_for(plan);
    options.weights = folder / (world.rank() == 0 ? "node0" : "node1");
    try {
      train(plan, world, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.mistake().where, "the first weights");
      throw;
    }
  });
  EXPECT_THAT(errors, AllOf(SizeIs(2), Each(HasSubstr("replicas hold different weights"))));
}

TEST(Trainer, ATraceThatCannotBeWrittenLeavesTheReport) {
  const Plan plan = wide_plan(2);
  const ScratchFolder folder;
  TrainOptions options = options_for(plan, 3);
  options.trace = folder / "absent/trace.json";
  std::vector<Mistake> unwritten;
  comm::run_in_process(2, [&](comm::Group& world) {
    const TrainReport report = train(plan, world, options);
    EXPECT_THAT(report.steps, SizeIs(3));
    if (world.rank() == 0) unwritten = report.unwritten;
  });
  ASSERT_THAT(unwritten, SizeIs(1));
  EXPECT_THAT(unwritten.front().where, HasSubstr("trace.json"));
}

TEST(Trainer, RefusesMoreRanksThanThePlanHasDevices) {
  const Plan plan = wide_plan(2);
  const auto errors =
      errors_of(3, [&](comm::Group& world) { train(plan, world, options_for(plan)); });
  EXPECT_THAT(errors, AllOf(SizeIs(3), Each(HasSubstr("3 ranks for a plan of 2 devices"))));
}

TEST(Trainer, RefusesTokensThatTheModelDoesNotKnow) {
  const Plan plan = wide_plan(2);
  const auto errors = errors_of(2, [&](comm::Group& world) {
    TrainOptions options = options_for(plan);
    options.data = synthetic(62, 1);
    train(plan, world, options);
  });
  EXPECT_THAT(errors, AllOf(SizeIs(2),
                            Each(HasSubstr("the data has tokens up to 61, the model knows 61"))));
}

TEST(Trainer, EndsAllRanksWhenTheLossIsNoNumber) {
  const Plan plan = wide_plan(2);
  const auto errors = errors_of(2, [&](comm::Group& world) {
    TrainOptions options = options_for(plan, 10);
    options.learning_rate.peak = 1e30;
    train(plan, world, options);
  });
  EXPECT_THAT(errors, AllOf(SizeIs(2), Each(HasSubstr("at step 2"))));
}

// Throws where a run gets to the sample, like a disk that fails.
class Failing final : public Dataset {
 public:
  explicit Failing(std::int64_t at) : at_(at), sound_(synthetic(61, 1)) {}
  std::int64_t samples() const override { return 0; }
  std::int64_t vocabulary() const override { return 61; }
  std::string describe() const override { return "failing"; }
  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    if (index == at_)
      throw Error({.what = "the disk is gone", .where = "sample", .fix = "mount it"});
    sound_->read(index, tokens);
  }

 private:
  std::int64_t at_;
  std::unique_ptr<Dataset> sound_;
};

TEST(Trainer, ARankThatDiesEndsTheOthersAndIsNamedByThem) {
  const Plan plan = wide_plan(4);
  TrainOptions options = options_for(plan);
  options.data = std::make_shared<Failing>(8 + 2 * 3);  // rank 3's first sample of the second step
  std::mutex mutex;
  std::set<std::string> errors;
  const auto run = [&] {
    comm::run_in_process(
        4,
        [&](comm::Group& world) {
          try {
            train(plan, world, options);
          } catch (const Error& error) {
            const std::scoped_lock lock(mutex);
            errors.insert(fmt::format("{}: {}", world.rank(), error.mistake().what));
            throw;
          }
        },
        kTimeout);
  };
  EXPECT_EQ(mistake_of("a rank that dies", run).what, "the disk is gone");
  ASSERT_THAT(errors, SizeIs(4));
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                error.starts_with("3") ? HasSubstr("the disk is gone") : HasSubstr("rank 3"));
}

TEST(Trainer, ARankThatStaysAwayIsNamedWithinTheTimeout) {
  const Plan plan = wide_plan(3);
  const auto errors = errors_of(3, [&](comm::Group& world) {
    if (world.rank() == 1) {
      std::this_thread::sleep_for(3 * kTimeout / 2);
      return;
    }
    train(plan, world, options_for(plan));
  });
  EXPECT_THAT(errors, AllOf(SizeIs(2), Each(HasSubstr("rank 1"))));
}

}  // namespace
}  // namespace braid::train
