// A comparison as a file.

#include "planner/core/json.h"
#include "planner/explain/comparison.h"

namespace braid {

namespace {

constexpr const char* kFormat = "braid.comparison";

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json range_json(const std::optional<ErrorRange>& range) {
  if (!range) return {};
  return {{"lowest", range->lowest}, {"highest", range->highest}};
}

Json measured_json(const MeasuredPlan& measured) {
  Json json{{"seconds", measured.seconds.value()}, {"spread", measured.spread}};
  json["steps"] = Json::array();
  for (const Seconds step : measured.steps) json["steps"].push_back(step.value());
  json["allocated_bytes"] = Json::array();
  for (const Bytes bytes : measured.allocated) json["allocated_bytes"].push_back(bytes.value());
  return json;
}

MeasuredPlan read_measured(const JsonValue& value) {
  JsonObject object(value);
  MeasuredPlan measured;
  constexpr double kMost = 1e9;  // seconds: more than a run could last
  measured.seconds = Seconds(object.at("seconds").number(1e-12, kMost));
  measured.spread = object.at("spread").number(0);
  for (const JsonValue& v : object.array("steps")) measured.steps.emplace_back(v.number(0, kMost));
  for (const JsonValue& v : object.array("allocated_bytes"))
    measured.allocated.emplace_back(v.integer(kPositive));
  object.finish();
  return measured;
}

ComparedPlan read_compared(const JsonValue& value) {
  JsonObject object(value);
  ComparedPlan compared;
  for (const JsonValue& v : object.array("names")) compared.names.push_back(v.string());
  const JsonValue plan = object.at("plan");
  compared.plan = plan_from_json(plan.raw(), plan.path());
  if (const auto v = object.find("measured")) compared.measured = read_measured(*v);
  compared.error = object.string_or("error", "");
  object.find("layout");  // follows from the plan
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
    Json entry{{"names", compared.names}, {"layout", short_name(compared.plan)}};
    if (!compared.error.empty()) entry["error"] = compared.error;
    if (compared.measured) entry["measured"] = measured_json(*compared.measured);
    entry["plan"] = to_json(compared.plan);
    json["plans"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace braid
