// The plan file. Every field is always written, a square's where there is one and a prediction's
// where the plan was priced; runs of layers with equal strategies are written once, with their
// length. Reading takes less: what a plan written by hand leaves out has its usual value.

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

// Replaces `value` where the key is there.
template <class Choices, class Choice>
void find_choice(JsonObject& object, const std::string& key, const Choices& choices,
                 Choice& value) {
  if (const auto found = object.find(key)) value = read_choice(*found, choices);
}

int read_count_or(JsonObject& object, const std::string& key, int usual, const WholeLimit& limit) {
  return static_cast<int>(object.integer_or(key, usual, limit));
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

// How many devices a stage has and how many layers the model, while stages are read.
struct StageRoom {
  int devices = 1;
  std::size_t layers = 0;
};

// The replicas that tp and cp leave a stage; 1 where they do not divide its devices.
int left_for_dp(const Strategy& s, int devices) {
  const std::int64_t split = std::int64_t{s.tp} * s.cp;
  return devices % split == 0 ? static_cast<int>(devices / split) : 1;
}

// Appends one run, within the model's layers, which keeps a forged length from filling the memory.
void read_strategy(const JsonValue& value, const StageRoom& room,
                   std::vector<Strategy>& strategies) {
  JsonObject object(value);
  const JsonValue layers = object.at("layers");
  const auto count = static_cast<std::size_t>(layers.integer(limits::kLayers));
  if (count > room.layers - strategies.size())
    layers.fail(
        fmt::format("the stage has strategies for more than the model's {} layers", room.layers),
        "make the runs' \"layers\" add up to the layers of the stage");
  Strategy s;
  s.tp = read_count_or(object, "tp", 1, limits::kDegree);
  find_choice(object, "tp_kind", kTensorKinds, s.tp_kind);
  if (s.tp_kind == TensorKind::spatial_temporal) {
    s.square = static_cast<int>(object.integer("square", limits::kDegree));
    find_choice(object, "variant", kVariants, s.variant);
  }
  s.cp = read_count_or(object, "cp", 1, limits::kDegree);
  s.dp = read_count_or(object, "dp", left_for_dp(s, room.devices), limits::kDegree);
  s.zero = static_cast<Zero>(object.integer_or("zero", 0, {.low = 0, .high = 3}));
  s.ep = read_count_or(object, "ep", 1, limits::kDegree);
  find_choice(object, "recompute", kRecomputes, s.recompute);
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
  return {static_cast<int>(bounds[0].integer(limits::kLayers.or_zero())),
          static_cast<int>(bounds[1].integer(limits::kLayers.or_zero()))};
}

// `begin`: the layer that a stage without "chunks" goes on from.
StagePlan read_stage(const JsonValue& value, const StageRoom& room, int begin) {
  JsonObject object(value);
  StagePlan stage;
  for (const JsonValue& run : object.array("strategies"))
    read_strategy(run, room, stage.strategies);
  if (const auto chunks = object.find("chunks")) {
    for (const JsonValue& range : chunks->array()) stage.chunks.push_back(read_range(range));
  } else {
    stage.chunks.push_back({begin, begin + static_cast<int>(stage.strategies.size())});
  }
  object.finish();
  return stage;
}

std::vector<StagePlan> read_stages(const std::vector<JsonValue>& values, const Plan& plan) {
  StageRoom room{1, plan.model.layers.size()};
  if (!values.empty()) room.devices = plan.cluster.num_devices() / static_cast<int>(values.size());
  std::vector<StagePlan> stages;
  stages.reserve(values.size());
  for (const JsonValue& value : values) {
    const bool first = stages.empty() || stages.back().chunks.empty();
    stages.push_back(read_stage(value, room, first ? 0 : stages.back().chunks.back().end));
  }
  return stages;
}

// A file that a plan names lies beside it.
std::filesystem::path beside(const std::string& source, const std::string& file) {
  return std::filesystem::path(source).parent_path() / file;
}
Model read_plan_model(const JsonValue& value, const std::string& source) {
  if (value.raw().is_string()) return read_model(beside(source, value.string()), 0);
  return model_from_braid(value.raw(), value.path(), 0);
}
Cluster read_plan_cluster(const JsonValue& value, const std::string& source) {
  if (value.raw().is_string()) return read_cluster(beside(source, value.string()));
  return cluster_from_json(value.raw(), value.path());
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
  plan.model = read_plan_model(object.at("model"), source);
  plan.cluster = read_plan_cluster(object.at("cluster"), source);
  find_choice(object, "cost", kCosts, plan.cost);
  if (const auto profile = object.find("profile")) plan.profile = read_reference(*profile);
  find_choice(object, "precision", kPrecisions, plan.precision);
  expect_precision(plan.cluster, plan.precision, fmt::format("{}: precision", source));
  find_choice(object, "gradient_precision", kGradientPrecisions, plan.gradient_precision);
  plan.memory_limit = Bytes(object.integer_or("memory_limit", 0, limits::kMemory.or_zero()));
  expect_limit_within(plan.cluster, plan.memory_limit, fmt::format("{}: memory_limit", source));
  plan.global_batch = object.integer("global_batch", limits::kGlobalBatch);
  plan.shape.micro_batches = read_count_or(object, "micro_batches", 1, limits::kMicroBatches);
  find_choice(object, "schedule", kSchedules, plan.shape.schedule);
  plan.shape.chunks = read_count_or(object, "chunks", 1, limits::kChunks);
  find_choice(object, "mesh_order", std::to_array(kMeshOrders), plan.mesh_order);
  plan.stages = read_stages(object.array("stages"), plan);
  plan.shape.stages = static_cast<int>(plan.stages.size());
  const auto prediction = object.find("prediction");
  if (prediction) plan.prediction = prediction_from_json(*prediction);
  if (const auto certificate = object.find("certificate")) {
    if (!prediction)
      certificate->fail("a certificate without the prediction that it speaks of",
                        "leave it out: braid price makes the prediction");
    plan.certificate = certificate_from_json(*certificate);
    constexpr double kRounding = 1 + 1e-6;
    if (plan.certificate.lower_bound > kRounding * plan.prediction.iteration)
      certificate->fail(
          fmt::format("a lower bound of {:g} s above the plan's own iteration, {:g} s",
                      plan.certificate.lower_bound.value(), plan.prediction.iteration.value()),
          "leave \"prediction\" and \"certificate\" out: braid price makes them");
  }
  object.finish();
  verify(plan, source);
  if (prediction && plan.prediction.stages.size() != plan.stages.size())
    prediction->fail(fmt::format("predictions for {} stages of {}", plan.prediction.stages.size(),
                                 plan.stages.size()),
                     "predict every stage, or leave \"prediction\" out: braid price makes it");
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
  if (!plan.prediction.stages.empty()) {
    json["prediction"] = to_json(plan.prediction);
    json["certificate"] = to_json(plan.certificate);
  }
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
