#pragma once
// A whole training run, as one rank sees it.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/error.h"
#include "planner/explain/run_report.h"
#include "planner/plan/plan.h"
#include "planner/plan/step_terms.h"
#include "runtime/train/adamw.h"
#include "runtime/train/data.h"
#include "runtime/train/held_memory.h"
#include "runtime/train/learning_rate.h"
#include "runtime/train/progress.h"
#include "runtime/train/saving.h"

namespace braid::train {

enum class RunPrecision { plan, fp64, fp32, bf16, fp8 };

struct TrainOptions {
  std::int64_t steps = 1;
  RunPrecision precision = RunPrecision::plan;
  std::uint64_t seed = 1;  // of weights, dropout and the order of samples
  AdamW adamw;
  double clip = 1.0;  // of the gradient's norm; 0: none
  double dropout = 0;
  LearningRate learning_rate;
  std::shared_ptr<const Dataset> data;     // ranks that are threads share one
  std::optional<std::int64_t> mask_token;  // of a masked model; none: the data's first free id
  at::Device device = at::kCPU;
  bool capture = true;  // see WorkerOptions
  // A Hugging Face checkpoint, or one of a run, whose weights to begin with; empty: random ones.
  std::filesystem::path weights;
  SaveOptions save;
  std::string program;  // "braid 0.1.0": what checkpoints say who wrote them

  // Rank 0 alone writes.
  std::function<void()> on_start;  // all ranks agree, and the first step is next
  // Ahead of that: the run goes on from a checkpoint, and these settings have changed since.
  std::function<void(const std::filesystem::path& from, const std::vector<std::string>& changed)>
      on_resume;
  std::function<void(const checkpoint::Saved&)> on_saved;  // or could not be
  std::filesystem::path metrics;                           // a folder; empty: none
  bool tensorboard = false;
  std::FILE* progress_to = nullptr;  // null: silent
  ProgressOptions progress;

  // So many of the last steps are recorded for the report, never the first one and no more than
  // half of the others, as long as that leaves one. The second step is recorded for runs that stop
  // before those.
  std::int64_t recorded_steps = 3;
  std::filesystem::path trace;  // of the recorded steps, by rank 0; empty: none

  // On rank 0: an output that cannot be written any more; training goes on without it.
  std::function<void(const Mistake&)> on_trouble;
  // Something that a person should look at; called on rank 0.
  std::function<void(const std::string&)> on_warning;

  // Every so many steps, ranks that hold the same weights compare them; 0: never.
  std::int64_t check_replicas = 0;

  // The signal that asks this rank to end the run after the step under way, 0: none. All ranks end
  // after the same step, whichever was asked. Empty: never.
  std::function<int()> stop_signal;
};

struct TrainReport {
  std::int64_t first_step = 0;     // steps that earlier starts of the run took
  std::vector<double> losses;      // by step, of this start
  std::vector<Seconds> steps;      // all of them
  Seconds step;                    // the median of those that were neither recorded nor the first,
                                   // which also warms up; of the others where no such step is left
  std::optional<double> mfu;       // of that step; none where the devices' peak is not known
  std::vector<HeldMemory> stages;  // by stage, of the ranks that hold most
  std::vector<StepTerms> terms;    // by stage, means; empty where nothing was recorded
  std::vector<Mistake> unwritten;  // on rank 0: outputs that are absent or lack steps
  Seconds save_stall;              // of this rank's time that saves took from training
  int stopped_by = 0;              // the signal that ended the run early; 0: it took all steps
};

parallel::Numerics numerics_for(const Plan& plan, RunPrecision precision, at::Device device);

// Every rank of the world calls this with the same plan and options, and gets the same report.
// Throws on every rank an Error that names the ranks whose plan or options differ; else whatever
// Worker and MetricsWriter throw.
TrainReport train(const Plan& plan, comm::Group& world, const TrainOptions& options);

// Beside what the plan predicted.
RunReport run_report(const Plan& plan, const TrainReport& report);

}  // namespace braid::train
