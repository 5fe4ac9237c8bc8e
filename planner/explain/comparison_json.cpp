// A comparison as a file.

#include "planner/core/json.h"
#include "planner/explain/comparison.h"
#include "planner/explain/utilisation.h"

namespace braid {

namespace {

constexpr const char* kFormat = "braid.comparison";

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// A row of the text: predicted, measured and the errors between them.
Json figures_json(const ComparedPlan& compared) {
  const Plan& plan = compared.plan;
  const Bytes planned = predicted_allocation(plan);
  Json json = {{"predicted_seconds", plan.prediction.iteration.value()},
               {"predicted_allocated_bytes", planned.value()}};
  if (!compared.measured) return json;
  const MeasuredPlan& run = *compared.measured;
  json["measured"] = to_json(utilisation(plan, run.seconds));
  json["time_error"] = Outturn{plan.prediction.iteration.value(), run.seconds.value()}.error();
  if (const std::optional<Bytes> held = run.allocated()) {
    json["measured_allocated_bytes"] = held->value();
    json["memory_error"] = planned / *held - 1;
  }
  return json;
}

Json range_json(const std::optional<ErrorRange>& range) {
  if (!range) return {};
  return {{"lowest", range->lowest}, {"highest", range->highest}};
}

ComparedPlan read_compared(const JsonValue& value) {
  JsonObject object(value);
  ComparedPlan compared;
  for (const JsonValue& v : object.array("names")) compared.names.push_back(v.string());
  if (const auto measured = object.find("report")) {
    RunReport report = report_from_json(measured->raw(), measured->path());
    compared.plan = std::move(report.plan);
    compared.measured = MeasuredPlan{.steps = std::move(report.steps),
                                     .seconds = report.step,
                                     .spread = object.at("spread").number(limits::kNoise),
                                     .stages = std::move(report.stages)};
    if (!(report.step > Seconds(0)))
      measured->fail("a step that takes no time", "measure this plan again");
  } else {
    const JsonValue plan = object.at("plan");
    compared.plan = plan_from_json(plan.raw(), plan.path());
  }
  compared.error = object.string_or("error", "");
  for (const char* key : {"layout", "figures"}) object.find(key);  // follow from plan and report
  object.finish();
  return compared;
}

// For readers of the file; made anew from the plans whenever it is written.
Json summary_json(const Comparison& comparison) {
  const ComparisonSummary s = summarise(comparison);
  return {{"measured", s.measured},
          {"failed", s.failed},
          {"spearman", optional_json(s.spearman)},
          {"mean_absolute_error", optional_json(s.mean_error)},
          {"errors", range_json(s.errors)},
          {"memory_errors", range_json(s.memory_errors)},
          {"chosen_place", s.regret ? Json(s.regret->place) : Json()},
          {"chosen_regret", s.regret ? Json(s.regret->excess) : Json()},
          {"speed_up_over_best_baseline", optional_json(s.speed_up)}};
}

}  // namespace

Comparison comparison_from_json(const Json& json, const std::string& source) {
  JsonObject object(JsonValue(json, source));
  expect_format(object, kFormat, kComparisonVersion);
  Comparison comparison;
  for (const auto& [name, value] : JsonObject(object.at("task")).entries())
    comparison.task.push_back({name, value.string()});
  for (const JsonValue& v : object.array("plans")) comparison.plans.push_back(read_compared(v));
  for (const JsonValue& v : object.array("missing")) {
    JsonObject missing(v);
    comparison.missing.push_back({missing.string("name"), missing.string("reason")});
    missing.finish();
  }
  object.find("summary");
  object.finish();
  return comparison;
}

Comparison read_comparison(const std::filesystem::path& file) {
  return comparison_from_json(read_json(file), file.string());
}

Json to_json(const Comparison& comparison) {
  Json json{{"format", kFormat}, {"version", kComparisonVersion}};
  json["task"] = Json::object();
  for (const Fact& fact : comparison.task) json["task"][fact.name] = fact.value;
  json["summary"] = summary_json(comparison);
  json["missing"] = Json::array();
  for (const MissingPlan& missing : comparison.missing)
    json["missing"].push_back({{"name", missing.name}, {"reason", missing.reason}});
  json["plans"] = Json::array();
  for (const ComparedPlan& compared : comparison.plans) {
    Json entry{{"names", compared.names},
               {"layout", short_name(compared.plan)},
               {"figures", figures_json(compared)}};
    if (!compared.error.empty()) entry["error"] = compared.error;
    if (compared.measured) {
      entry["spread"] = compared.measured->spread;
      entry["report"] = to_json(compared.report());
    } else {
      entry["plan"] = to_json(compared.plan);
    }
    json["plans"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace braid
