#pragma once
// What a training run says at its end: predicted against measured. The file braid.train_report.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/held_memory.h"
#include "planner/plan/plan.h"
#include "planner/plan/step_terms.h"

namespace braid {

// Predicted and measured of one device; memory of the stage's device that held most.
struct StageReport {
  HeldMemory held;
  std::optional<StepTerms> measured;   // means over the stage's devices and the recorded steps
  std::optional<StepTerms> predicted;  // where the plan was priced
};

struct RunReport {
  Plan plan;
  Seconds step;                // the median of steps that were neither the first nor recorded
  std::vector<Seconds> steps;  // all of them
  std::optional<double> mfu;   // where the devices' peak is known
  std::vector<double> losses;  // by step
  std::vector<StageReport> stages;
  std::string stopped_by = {};  // the signal that ended the run early ("SIGTERM"); empty: none
};

// A plan that was never priced has nothing to compare with.
bool is_priced(const Plan& plan);

Json to_json(const RunReport& report);
// Strict: throws Error on a file of another version, with an unknown key, or cut short.
RunReport read_report(const std::filesystem::path& file);
RunReport report_from_json(const Json& json, const std::string& source);

// Bytes by term: what a stage's device held, and what the plan says of it.
Json memory_json(const Plan& plan, std::size_t stage, const HeldMemory& held);

}  // namespace braid
