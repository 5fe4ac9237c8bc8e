// The plan file. Every field is always written, a square's where there is one; runs of layers with
// equal strategies are written once, with their length.

#include <fmt/core.h>

#include <array>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/plan/plan.h"
#include "planner/plan/prediction_json.h"

namespace braid {

namespace {

constexpr int kVersion = 1;
constexpr const char* kFormat = "braid.plan";

constexpr IntRange kBytes{0, std::numeric_limits<std::int64_t>::max()};
constexpr IntRange kCount{1, std::numeric_limits<int>::max()};
constexpr IntRange kLayer{0, std::numeric_limits<int>::max()};

constexpr std::array kCosts = {CostKind::measured, CostKind::roofline, CostKind::galvatron,
                               CostKind::analytic};
constexpr std::array kPrecisions = {Precision::fp32, Precision::bf16, Precision::fp8};
constexpr std::array kGradientPrecisions = {Precision::fp32, Precision::bf16};
constexpr std::array kSchedules = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                   ScheduleKind::interleaved, ScheduleKind::zero_bubble};
constexpr std::array kTensorKinds = {TensorKind::megatron, TensorKind::ulysses,
                                     TensorKind::spatial_temporal};
constexpr std::array kVariants = {SquareVariant::plus_minus, SquareVariant::paper};
constexpr std::array kRecomputes = {Recompute::none, Recompute::selective, Recompute::full};

template <class Choices>
auto read_choice(const JsonValue& value, const Choices& choices) {
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const auto choice : choices) names.push_back(name_of(choice));
  return choices[value.choice(names)];
}

int read_count(JsonObject& object, const std::string& key) {
  return static_cast<int>(object.integer(key, kCount));
}

Json write_strategy(const Strategy& s, std::size_t layers) {
  Json json;
  json["layers"] = layers;
  json["tp"] = s.tp;
  json["tp_kind"] = name_of(s.tp_kind);
  if (s.tp_kind == TensorKind::spatial_temporal) {
    json["square"] = s.square;
    json["variant"] = name_of(s.variant);
  }
  json["cp"] = s.cp;
  json["dp"] = s.dp;
  json["zero"] = static_cast<int>(s.zero);
  json["ep"] = s.ep;
  json["recompute"] = name_of(s.recompute);
  return json;
}

// Appends one run, within the `limit` that keeps a forged length from filling the memory.
void read_strategy(const JsonValue& value, std::size_t limit, std::vector<Strategy>& strategies) {
  JsonObject object(value);
  const JsonValue layers = object.at("layers");
  const auto count = static_cast<std::size_t>(layers.integer(kCount));
  if (count > limit - strategies.size())
    layers.fail(fmt::format("the stage has strategies for more than the model's {} layers", limit),
                "make the runs' \"layers\" add up to the layers of the stage");
  Strategy s;
  s.tp = read_count(object, "tp");
  s.tp_kind = read_choice(object.at("tp_kind"), kTensorKinds);
  if (s.tp_kind == TensorKind::spatial_temporal) {
    s.square = read_count(object, "square");
    if (const auto variant = object.find("variant")) s.variant = read_choice(*variant, kVariants);
  }
  s.cp = read_count(object, "cp");
  s.dp = read_count(object, "dp");
  s.zero = static_cast<Zero>(object.integer("zero", {.low = 0, .high = 3}));
  s.ep = read_count(object, "ep");
  s.recompute = read_choice(object.at("recompute"), kRecomputes);
  object.finish();
  strategies.insert(strategies.end(), count, s);
}

Json write_stage(const StagePlan& stage) {
  Json json;
  json["chunks"] = Json::array();
  for (const LayerRange& range : stage.chunks)
    json["chunks"].push_back(Json::array({range.begin, range.end}));
  json["strategies"] = Json::array();
  const std::vector<Strategy>& strategies = stage.strategies;
  for (std::size_t i = 0; i < strategies.size();) {
    std::size_t end = i;
    while (end < strategies.size() && strategies[end] == strategies[i]) ++end;
    json["strategies"].push_back(write_strategy(strategies[i], end - i));
    i = end;
  }
  return json;
}

LayerRange read_range(const JsonValue& value) {
  const std::vector<JsonValue> bounds = value.array();
  if (bounds.size() != 2)
    value.fail(fmt::format("a range of layers has two bounds, not {}", bounds.size()),
               "write [first layer, one past the last]");
  return {static_cast<int>(bounds[0].integer(kLayer)), static_cast<int>(bounds[1].integer(kLayer))};
}

StagePlan read_stage(const JsonValue& value, const Model& model) {
  JsonObject object(value);
  StagePlan stage;
  for (const JsonValue& range : object.array("chunks")) stage.chunks.push_back(read_range(range));
  for (const JsonValue& run : object.array("strategies"))
    read_strategy(run, model.layers.size(), stage.strategies);
  object.finish();
  return stage;
}

ProfileReference read_reference(const JsonValue& value) {
  JsonObject object(value);
  ProfileReference reference{object.string("file"), object.string("fingerprint")};
  object.finish();
  return reference;
}

}  // namespace

Plan plan_from_json(const Json& json, const std::string& source) {
  JsonObject object{JsonValue(json, source)};
  expect_format(object, kFormat, kVersion);
  Plan plan;
  const JsonValue model = object.at("model");
  plan.model = model_from_braid(model.raw(), model.path(), 0);
  const JsonValue cluster = object.at("cluster");
  plan.cluster = cluster_from_json(cluster.raw(), cluster.path());
  plan.cost = read_choice(object.at("cost"), kCosts);
  if (const auto profile = object.find("profile")) plan.profile = read_reference(*profile);
  plan.precision = read_choice(object.at("precision"), kPrecisions);
  plan.gradient_precision = read_choice(object.at("gradient_precision"), kGradientPrecisions);
  plan.memory_limit = Bytes(object.integer("memory_limit", kBytes));
  plan.global_batch = object.integer("global_batch", kPositive);
  plan.shape.micro_batches = read_count(object, "micro_batches");
  plan.shape.schedule = read_choice(object.at("schedule"), kSchedules);
  plan.shape.chunks = read_count(object, "chunks");
  plan.mesh_order = read_choice(object.at("mesh_order"), std::to_array(kMeshOrders));
  for (const JsonValue& stage : object.array("stages"))
    plan.stages.push_back(read_stage(stage, plan.model));
  plan.shape.stages = static_cast<int>(plan.stages.size());
  const JsonValue prediction = object.at("prediction");
  plan.prediction = prediction_from_json(prediction);
  plan.certificate = certificate_from_json(object.at("certificate"));
  object.finish();
  verify(plan, source);
  if (plan.prediction.stages.size() != plan.stages.size())
    prediction.fail(fmt::format("predictions for {} stages of {}", plan.prediction.stages.size(),
                                plan.stages.size()),
                    "predict every stage, or write the plan again");
  return plan;
}

Plan read_plan(const std::filesystem::path& file) {
  return plan_from_json(read_json(file), file.string());
}

Json to_json(const Plan& plan) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["model"] = to_json(plan.model);
  json["cluster"] = to_json(plan.cluster);
  json["cost"] = name_of(plan.cost);
  if (plan.profile) {
    json["profile"]["file"] = plan.profile->file;
    json["profile"]["fingerprint"] = plan.profile->fingerprint;
  }
  json["precision"] = name_of(plan.precision);
  json["gradient_precision"] = name_of(plan.gradient_precision);
  json["memory_limit"] = plan.memory_limit.value();
  json["global_batch"] = plan.global_batch;
  json["micro_batches"] = plan.shape.micro_batches;
  json["schedule"] = name_of(plan.shape.schedule);
  json["chunks"] = plan.shape.chunks;
  json["mesh_order"] = name_of(plan.mesh_order);
  json["stages"] = Json::array();
  for (const StagePlan& stage : plan.stages) json["stages"].push_back(write_stage(stage));
  json["prediction"] = to_json(plan.prediction);
  json["certificate"] = to_json(plan.certificate);
  return json;
}

std::string plan_text(const Plan& plan) {
  try {
    return to_json(plan).dump(2) + "\n";
  } catch (const Json::type_error&) {  // names of files may hold any bytes, JSON may not
    throw Error({.what = "a name in the plan is not valid UTF-8",
                 .where = plan.profile ? plan.profile->file : plan.model.name,
                 .fix = "rename the model or profile file"});
  }
}

}  // namespace braid
