#include "planner/explain/run_report.h"

#include <fmt/core.h>

#include <cmath>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/explain/summary.h"
#include "planner/explain/utilisation.h"

namespace braid {

namespace {

constexpr const char* kFormat = "braid.train_report";
constexpr int kVersion = 2;

struct MemoryTerm {
  const char* name;
  Bytes HeldMemory::*held;
  Bytes MemoryParts::*planned;
};
constexpr MemoryTerm kMemoryTerms[] = {
    {"weights", &HeldMemory::weights, &MemoryParts::weights},
    {"gradients", &HeldMemory::gradients, &MemoryParts::gradients},
    {"optimizer", &HeldMemory::optimizer, &MemoryParts::optimizer},
    {"activations", &HeldMemory::activations, &MemoryParts::activations},
};
constexpr const char* kAllocator = "allocator";

Json write(Seconds time) {
  internal_check(std::isfinite(time.value()), "only finite times go into a report");
  return time.value();
}

Json write(const StepTerms& terms) {
  Json json = Json::object();
  for (const PlainTerm& term : kPlainTerms) json[term.name] = write(terms.*term.member);
  for (const CommTerm& term : kCommTerms) {
    const CommTime& time = terms.*term.member;
    json[term.name] = {{"exposed", write(time.exposed)}, {"hidden", write(time.hidden)}};
  }
  return json;
}

StepTerms read_terms(const JsonValue& value) {
  JsonObject object(value);
  StepTerms terms;
  for (const PlainTerm& term : kPlainTerms)
    terms.*term.member = Seconds(object.number(term.name, limits::kTimeTerm));
  for (const CommTerm& term : kCommTerms) {
    JsonObject time = object.object(term.name);
    terms.*term.member = {Seconds(time.number("exposed", limits::kTimeTerm)),
                          Seconds(time.number("hidden", limits::kTimeTerm))};
    time.finish();
  }
  object.finish();
  return terms;
}

HeldMemory read_held(JsonObject object) {
  HeldMemory held;
  for (const MemoryTerm& term : kMemoryTerms)
    held.*term.held = Bytes(object.integer(term.name, limits::kPlannedBytes));
  if (object.has(kAllocator))
    held.allocated = Bytes(object.integer(kAllocator, limits::kPlannedBytes));
  object.finish();
  return held;
}

// The plan says it too: what is written beside it serves readers who have no planner at hand.
void skip_planned(JsonObject object) {
  for (const MemoryTerm& term : kMemoryTerms) object.integer(term.name, limits::kPlannedBytes);
  object.integer(kAllocator, limits::kPlannedBytes);
  object.finish();
}

StageReport read_stage(const JsonValue& value, std::size_t number) {
  JsonObject object(value);
  const auto stage = static_cast<std::size_t>(object.integer("stage", limits::kDegree.or_zero()));
  if (stage != number)
    object.fail(fmt::format("stage {} at place {}", stage, number), "list the stages in order");
  StageReport report;
  report.held = read_held(object.object("held_bytes"));
  if (object.has("planned_bytes")) skip_planned(object.object("planned_bytes"));
  if (const auto terms = object.find("measured")) report.measured = read_terms(*terms);
  if (const auto terms = object.find("predicted")) report.predicted = read_terms(*terms);
  object.finish();
  return report;
}

}  // namespace

bool is_priced(const Plan& plan) {
  return std::ssize(plan.prediction.stages) == plan.shape.stages &&
         plan.prediction.iteration > Seconds(0);
}

Json memory_json(const Plan& plan, std::size_t stage, const HeldMemory& held) {
  Json json = {{"stage", stage}};
  for (const MemoryTerm& term : kMemoryTerms)
    json["held_bytes"][term.name] = (held.*term.held).value();
  if (held.allocated) json["held_bytes"][kAllocator] = held.allocated->value();
  if (is_priced(plan)) {
    const StagePrediction& prediction = plan.prediction.stages[stage];
    const MemoryParts parts = held_parts(prediction);
    for (const MemoryTerm& term : kMemoryTerms)
      json["planned_bytes"][term.name] = (parts.*term.planned).value();
    json["planned_bytes"][kAllocator] = prediction.allocated().value();
  }
  return json;
}

namespace {

// Made from the plan and the step; readers of the file need no planner for them.
constexpr const char* kFigures[] = {"samples_per_second", "tokens_per_second", "flops_per_sample",
                                    "physics_bound_seconds"};

void add_figures(Json& json, const RunReport& report) {
  if (!(report.step > Seconds(0))) return;
  const Json figures = to_json(utilisation(report.plan, report.step));
  for (const char* key : kFigures) json[key] = figures.at(key);
}

}  // namespace

Json to_json(const RunReport& report) {
  Json json = {{"format", kFormat}, {"version", kVersion}};
  json["plan"] = to_json(report.plan);
  json["step_seconds"] = write(report.step);
  json["step_seconds_all"] = Json::array();
  for (const Seconds step : report.steps) json["step_seconds_all"].push_back(write(step));
  json["planned_step_seconds"] = write(report.plan.prediction.iteration);
  json["mfu"] = report.mfu ? Json(*report.mfu) : Json();
  add_figures(json, report);
  json["losses"] = report.losses;
  if (!report.stopped_by.empty()) json["stopped_by"] = report.stopped_by;
  json["stages"] = Json::array();
  for (std::size_t stage = 0; stage < report.stages.size(); ++stage) {
    Json one = memory_json(report.plan, stage, report.stages[stage].held);
    if (report.stages[stage].measured) one["measured"] = write(*report.stages[stage].measured);
    if (report.stages[stage].predicted) one["predicted"] = write(*report.stages[stage].predicted);
    json["stages"].push_back(std::move(one));
  }
  return json;
}

RunReport report_from_json(const Json& json, const std::string& source) {
  JsonObject object(JsonValue(json, source));
  expect_format(object, kFormat, kVersion);
  RunReport report;
  const JsonValue plan = object.at("plan");
  report.plan = plan_from_json(plan.raw(), plan.path());
  report.step = Seconds(object.number("step_seconds", limits::kPredictedTime));
  for (const JsonValue& step : object.array("step_seconds_all"))
    report.steps.emplace_back(step.number(limits::kPredictedTime));
  object.number("planned_step_seconds", limits::kPredictedTime);
  if (const JsonValue mfu = object.at("mfu"); !mfu.raw().is_null())
    report.mfu = mfu.number(limits::kFigure);
  for (const char* key : kFigures) object.find(key);
  for (const JsonValue& loss : object.array("losses"))
    report.losses.push_back(loss.number(limits::kFigure));
  if (object.has("stopped_by")) report.stopped_by = object.string("stopped_by");
  const std::vector<JsonValue> stages = object.array("stages");
  if (std::ssize(stages) != report.plan.shape.stages)
    object.fail(fmt::format("{} stages of a plan of {}", stages.size(), report.plan.shape.stages),
                "give each stage of the plan an entry");
  for (const JsonValue& stage : stages)
    report.stages.push_back(read_stage(stage, report.stages.size()));
  object.finish();
  return report;
}

RunReport read_report(const std::filesystem::path& file) {
  return report_from_json(read_json(file), file.string());
}

}  // namespace braid
