#pragma once
// Plans of one task side by side, predicted and measured: a file that grows while plans run.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/json_fwd.h"
#include "planner/explain/accuracy.h"
#include "planner/explain/run_report.h"
#include "planner/plan/plan.h"
#include "planner/profile/profile.h"

namespace braid {

struct MeasuredPlan {
  std::vector<Seconds> steps;  // those that count, in order
  Seconds seconds;             // their median
  double spread = 0;           // the middle half of them, against the median
  std::vector<StageReport> stages = {};

  // The most that a device's allocator held; none where it does not count.
  std::optional<Bytes> allocated() const;
};

struct ComparedPlan {
  std::vector<std::string> names;  // who chose it; empty: added for comparison
  Plan plan;
  std::optional<MeasuredPlan> measured = {};
  std::string error = {};  // why it was not measured to its end; empty: nothing went wrong

  bool has_name(const std::string& name) const;
  // As if it had been trained by itself.
  RunReport report() const;
};

// An algorithm that found nothing that fits.
struct MissingPlan {
  std::string name, reason;
};

struct Comparison {
  std::vector<Fact> task;  // what is trained, and where: figures of another task do not compare
  std::vector<ComparedPlan> plans;
  std::vector<MissingPlan> missing;
};

// Two plans that run alike have the same: all but prices and who found it.
std::string layout_key(const Plan& plan);
// "pp2×8 1f1b · dp4 zero1": stages, micro-batches, schedule and strategy.
std::string short_name(const Plan& plan);

// The most that a device's allocator holds at any stage.
Bytes predicted_allocation(const Plan& plan);

inline constexpr int kComparisonVersion = 1;
Comparison comparison_from_json(const Json& json, const std::string& source);
Comparison read_comparison(const std::filesystem::path& file);
Json to_json(const Comparison& comparison);

// What the measured plans say about the predictions.
struct ComparisonSummary {
  int measured = 0, failed = 0;
  std::optional<double> spearman;
  std::optional<double> mean_error;
  std::optional<ErrorRange> errors;         // of times
  std::optional<ErrorRange> memory_errors;  // of the fullest device's allocation
  std::optional<std::size_t> chosen;        // index of the plan that `exact` found
  std::optional<Regret> regret;
  std::optional<std::size_t> best_baseline;  // the fastest of dp, zero3, tp, pp and megatron-3d
  std::optional<double> speed_up;            // of the chosen plan over it
};
ComparisonSummary summarise(const Comparison& comparison);

}  // namespace braid
