#pragma once
// What the files of `braid train` share.

#include <string>

#include "cli/verbs.h"
#include "cli/world.h"
#include "planner/core/json.h"
#include "planner/explain/layout.h"
#include "planner/explain/run_report.h"
#include "planner/plan/plan.h"
#include "runtime/train/trainer.h"

namespace braid::cli {

// Flags as they were typed.
struct TrainFlags {
  WorldFlags world;
  std::string plan, data = "synthetic", precision = "plan";
  std::string steps = "100", seed = "1", log_every;
  std::string rate = "3e-4", schedule = "constant", warmup = "0", decay, minimum = "0";
  std::string clip = "1", weight_decay = "0.1", beta1 = "0.9", beta2 = "0.95", dropout = "0";
  std::string metrics, out, trace, mask_token, weights, check_replicas;
  std::string save, save_every, save_minutes, keep, keep_every, on_save_error;
  std::string format = "text";
  bool resume = false, tensorboard = false, dry_run = false, no_capture = false;
};

// What is trained, on which data, how and how long, and what is written.
void add_training_flags(const Verb& verb, TrainFlags& flags);
// Checks what needs no plan; without data.
train::TrainOptions read_training(const TrainFlags& flags);
std::shared_ptr<const train::Dataset> open_data(const std::string& choice, const Model& model,
                                                std::uint64_t seed,
                                                std::optional<std::int64_t> mask_token = {});

// Runs all ranks of a plan, or the one that this process is. Rank 0 prints. May end the process.
int run_ranks(const Plan& plan, const TrainFlags& flags, const Place& place,
              train::TrainOptions options);
// One rank of it; its exit status.
int train_as(comm::Group& world, const Plan& plan, const TrainFlags& flags, const Place& place,
             train::TrainOptions options);
int run_dry(const Plan& plan, const TrainFlags& flags, const train::TrainOptions& options);

// Predicted against measured. `remark` stands below the terms of a step.
std::string report_text(const RunReport& report, const RenderOptions& look,
                        const std::string& remark = {});
// Where a step goes, of the stage that works longest. Empty where nothing was recorded.
std::string terms_text(const RunReport& report, const RenderOptions& look);
// What every stage holds beside what the plan says it holds. A term that differs is marked.
std::string memory_text(const Plan& plan, const std::vector<HeldMemory>& stages,
                        const RenderOptions& look);
Json memory_json(const Plan& plan, const std::vector<HeldMemory>& stages);

}  // namespace braid::cli
