#include "planner/explain/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/explain/summary.h"
#include "planner/profile/fingerprint.h"

namespace braid {

namespace {

constexpr std::array kBaselines = {Algorithm::dp, Algorithm::zero3, Algorithm::tp, Algorithm::pp,
                                   Algorithm::megatron_3d};

bool is_baseline(const ComparedPlan& compared) {
  return std::ranges::any_of(kBaselines,
                             [&](Algorithm a) { return compared.has_name(name_of(a)); });
}

// Embedding and head, where they are split unlike the block beside them.
std::string outside_note(const Plan& plan) {
  const auto note = [](const char* layer, Strategy block, const Strategy& own) {
    block.recompute = Recompute::none;
    block.ep = 1;
    return block == own ? "" : fmt::format(" · {} {}", layer, to_string(own));
  };
  const std::vector<Strategy>& first = plan.stages.front().strategies;
  const std::vector<Strategy>& last = plan.stages.back().strategies;
  std::string text;
  if (first.size() > 1) text += note("embedding", first[1], first[0]);
  if (last.size() > 1) text += note("head", last[last.size() - 2], last.back());
  return text;
}

}  // namespace

bool ComparedPlan::has_name(const std::string& name) const {
  return std::ranges::find(names, name) != names.end();
}

std::optional<Bytes> MeasuredPlan::allocated() const {
  std::optional<Bytes> most;
  for (const StageReport& stage : stages) most = std::max(most, stage.held.allocated);
  return most;
}

RunReport ComparedPlan::report() const {
  internal_check(measured.has_value(), "only a plan that ran has a report");
  return {.plan = plan,
          .step = measured->seconds,
          .steps = measured->steps,
          .mfu = std::nullopt,
          .losses = {},
          .stages = measured->stages};
}

std::string layout_key(const Plan& plan) {
  Json json = to_json(plan);
  for (const char* key : {"cost", "profile", "memory_limit", "prediction", "certificate"})
    json.erase(key);
  json["cluster"] = plan.cluster.num_devices();
  return fingerprint(json.dump());
}

std::string short_name(const Plan& plan) {
  const PipelineShape& shape = plan.shape;
  std::string name;
  if (shape.stages > 1) {
    name = fmt::format("pp{}×{} {}", shape.stages, shape.micro_batches, name_of(shape.schedule));
    if (shape.chunks > 1) name += fmt::format("×{}", shape.chunks);
  } else {
    name = fmt::format("×{}", shape.micro_batches);
  }
  if (plan.mesh_order != MeshOrder::pp_dp_cp_tp) name += " " + name_of(plan.mesh_order);
  return name + " · " + strategy_line(plan) + outside_note(plan);
}

Bytes predicted_allocation(const Plan& plan) {
  Bytes most;
  for (const StagePrediction& stage : plan.prediction.stages)
    most = std::max(most, stage.allocated());
  return most;
}

ComparisonSummary summarise(const Comparison& comparison) {
  ComparisonSummary summary;
  std::vector<Outturn> times, memory;
  std::vector<double> measured;
  std::optional<std::size_t> chosen_measured;  // index into `measured`
  for (std::size_t i = 0; i < comparison.plans.size(); ++i) {
    const ComparedPlan& compared = comparison.plans[i];
    if (!compared.error.empty()) ++summary.failed;
    if (!compared.measured) continue;
    const MeasuredPlan& run = *compared.measured;
    if (compared.has_name(name_of(Algorithm::exact))) {
      summary.chosen = i;
      chosen_measured = measured.size();
    }
    const auto slower = [&](std::size_t other) {
      return comparison.plans[other].measured->seconds > run.seconds;
    };
    if (is_baseline(compared) && (!summary.best_baseline || slower(*summary.best_baseline)))
      summary.best_baseline = i;
    measured.push_back(run.seconds.value());
    times.push_back({compared.plan.prediction.iteration.value(), run.seconds.value()});
    if (const std::optional<Bytes> held = run.allocated())
      memory.push_back({static_cast<double>(predicted_allocation(compared.plan).value()),
                        static_cast<double>(held->value())});
  }
  summary.measured = static_cast<int>(measured.size());
  summary.spearman = spearman(times);
  summary.mean_error = mean_absolute_error(times);
  summary.errors = error_range(times);
  summary.memory_errors = error_range(memory);
  if (chosen_measured) summary.regret = regret_of(measured, *chosen_measured);
  if (summary.chosen && summary.best_baseline)
    summary.speed_up = comparison.plans[*summary.best_baseline].measured->seconds /
                       comparison.plans[*summary.chosen].measured->seconds;
  return summary;
}

}  // namespace braid
