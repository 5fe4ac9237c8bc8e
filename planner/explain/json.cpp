#include "planner/explain/json.h"

#include "planner/core/json.h"
#include "planner/explain/summary.h"
#include "planner/explain/utilisation.h"

namespace braid {
namespace {

Json peaks(const Prediction& prediction) {
  Json json = Json::array();
  for (const StagePrediction& stage : prediction.stages) json.push_back(stage.peak.value());
  return json;
}

Json breakdown_json(const StagePrediction& stage) {
  const MemoryParts parts = memory_parts(stage);
  return {{"weights", parts.weights.value()},     {"gradients", parts.gradients.value()},
          {"optimizer", parts.optimizer.value()}, {"activations", parts.activations.value()},
          {"in_flight", stage.in_flight},         {"workspace", parts.workspace.value()},
          {"slack", parts.slack.value()},         {"overhead", parts.overhead.value()}};
}

Json stage_memory(const Plan& plan) {
  Json json = Json::array();
  for (const StagePrediction& stage : plan.prediction.stages) {
    json.push_back(breakdown_json(stage));
    json.back()["peak"] = stage.peak.value();
    json.back()["budget"] = stage.budget.value();
  }
  return json;
}

Json time_json(const TimeBreakdown& breakdown) {
  Json shares = Json::object();
  for (const TimeShare& share : breakdown.shares) shares[share.name] = share.time.value();
  return {{"stage", breakdown.stage}, {"seconds", std::move(shares)}};
}

Json bound_json(Seconds bound) { return bound > Seconds(0) ? Json(bound.value()) : Json(nullptr); }
Json excess_json(Seconds iteration, Seconds bound) {
  const auto fraction = excess(iteration, bound);
  return fraction ? Json(*fraction) : Json(nullptr);
}

Json balance(const Plan& plan) {
  const Balance degrees = balance_of(plan);
  return {{"time", degrees.time}, {"memory", degrees.memory}};
}

Json search_figures(const SearchResult& result) {
  const SearchStatistics& statistics = result.statistics;
  // Without a plan there is nothing to be certain of, and a bound of zero was not looked for.
  const auto bound = [&](Seconds Certificate::*member) {
    if (!result.plan || !(result.plan->certificate.*member > Seconds(0))) return Json(nullptr);
    return Json((result.plan->certificate.*member).value());
  };
  Json left_out = Json::object();
  for (const auto& [rule, count] : result.tree.left_out())
    left_out[std::string(info(rule).name)] = count;
  return {{"algorithm", result.plan ? Json(result.plan->certificate.algorithm) : Json(nullptr)},
          {"seconds", statistics.seconds},
          {"cpu_seconds", statistics.cpu_seconds},
          {"lower_bound_seconds", bound(&Certificate::lower_bound)},
          {"physics_bound_seconds", bound(&Certificate::physics_bound)},
          {"gap", bound(&Certificate::lower_bound).is_null() ? Json(nullptr) : Json(result.gap())},
          {"configurations", statistics.configurations},
          {"solved", statistics.solved},
          {"open", statistics.open},
          {"left_out", std::move(left_out)},
          {"interrupted", statistics.interrupted},
          {"ended_by", name_of(statistics.ending)},
          {"fixed", result.tree.fixed.to_string()}};
}

Json alternative_json(const Alternative& alternative) {
  const Plan& plan = alternative.plan;
  return {{"iteration_seconds", plan.prediction.iteration.value()},
          {"reason", alternative.reason},
          {"shape", shape_line(plan)},
          {"stages", plan.shape.stages},
          {"schedule", name_of(plan.shape.schedule)},
          {"micro_batches", plan.shape.micro_batches},
          {"micro_batch", plan.micro_batch()},
          {"peak_memory_bytes", peaks(plan.prediction)},
          {"plan", to_json(plan)}};
}

Json uniform_json(const SearchResult& result) {
  if (!result.uniform) return nullptr;
  const Plan& uniform = *result.uniform;
  return {{"iteration_seconds", uniform.prediction.iteration.value()},
          {"slower", uniform.prediction.iteration / result.plan->prediction.iteration - 1},
          {"shape", shape_line(uniform)},
          {"plan", to_json(uniform)}};
}

Json rule_json(const Mistake& mistake) {
  return {{"what", mistake.what}, {"where", mistake.where}, {"fix", mistake.fix}};
}

Json closest_json(const Plan& closest) {
  if (closest.stages.empty()) return nullptr;
  Plan plan = closest;
  plan.certificate = {};  // nothing was proven of what does not fit
  return {{"shape", shape_line(closest)},
          {"iteration_seconds", closest.prediction.iteration.value()},
          {"peak_memory_bytes", peaks(closest.prediction)},
          {"plan", to_json(plan)}};
}

Json infeasible_json(const Infeasible& infeasible) {
  const auto number = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  return {{"constraint", infeasible.constraint},
          {"reason", infeasible.reason.empty() ? Json(nullptr) : Json(infeasible.reason)},
          {"stage", infeasible.stage},
          {"needed_bytes", infeasible.needed.value()},
          {"available_bytes", infeasible.available.value()},
          {"breakdown", breakdown_json(infeasible.breakdown)},
          {"enough_memory_bytes",
           infeasible.enough_memory ? Json(infeasible.enough_memory->value()) : Json(nullptr)},
          {"enough_batch", number(infeasible.enough_batch)},
          {"enough_devices", number(infeasible.enough_devices)},
          {"closest", closest_json(infeasible.closest)},
          {"rule", infeasible.rule ? rule_json(*infeasible.rule) : Json(nullptr)}};
}

}  // namespace

Json predicted_json(const Plan& plan) {
  const Seconds iteration = plan.prediction.iteration;
  const Certificate& certificate = plan.certificate;
  const TimeBreakdown breakdown = time_breakdown(plan);
  Json json = to_json(utilisation(plan, iteration));
  json["peak_flops_per_second"] = cluster_peak(plan.cluster, plan.precision).value();
  json["bubble_fraction"] = bubble_fraction(breakdown, iteration);
  json["lower_bound_seconds"] = bound_json(certificate.lower_bound);
  json["gap"] = excess_json(iteration, certificate.lower_bound);
  json["physics_bound_seconds"] = bound_json(certificate.physics_bound);
  json["physics_excess"] = excess_json(iteration, certificate.physics_bound);
  json["time"] = time_json(breakdown);
  json["peak_memory_bytes"] = peaks(plan.prediction);
  json["memory_bytes"] = stage_memory(plan);
  return json;
}

Json plan_answer_json(const Plan& plan) {
  return {{"status", "ok"},
          {"predicted", predicted_json(plan)},
          {"balance", balance(plan)},
          {"plan", to_json(plan)}};
}

Json misfit_json(const Infeasible& infeasible) {
  return {{"status", "infeasible"}, {"infeasible", infeasible_json(infeasible)}, {"plan", nullptr}};
}

Json result_json(const SearchResult& result) {
  Json json;
  if (result.plan) {
    json = {{"status", "ok"},
            {"predicted", predicted_json(*result.plan)},
            {"search", search_figures(result)},
            {"balance", balance(*result.plan)},
            {"plan", to_json(*result.plan)},
            {"uniform", uniform_json(result)},
            {"alternatives", Json::array()}};
    for (const Alternative& alternative : result.alternatives)
      json["alternatives"].push_back(alternative_json(alternative));
    return json;
  }
  json = {{"status", result.infeasible ? "infeasible" : "interrupted"},
          {"search", search_figures(result)}};
  if (result.infeasible) json["infeasible"] = infeasible_json(*result.infeasible);
  json["plan"] = nullptr;
  return json;
}

}  // namespace braid
