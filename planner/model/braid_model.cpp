// Braid's own model file: layer types by their shapes, and runs of layers of a type. A field that
// has its default is left out, so that a file says only what is particular to the layer.

#include <fmt/core.h>

#include "planner/core/json.h"
#include "planner/model/fields.h"
#include "planner/model/model.h"

namespace braid {

namespace {

constexpr int kVersion = 1;
constexpr const char* kFormat = "braid.model";

// In the order of the enumerators.
const std::vector<std::string> kKinds = {"embedding", "block", "merge", "head"};
const std::vector<std::string> kAttentions = {"none", "causal", "bidirectional", "window"};
const std::vector<std::string> kNorms = {"layer_norm", "rms_norm"};
const std::vector<std::string> kActivations = {"gelu",  "relu",      "swiglu",
                                               "geglu", "gelu_tanh", "geglu_tanh"};

template <class Enum>
void read_choice(JsonObject& object, const std::string& key,
                 const std::vector<std::string>& choices, Enum& value) {
  if (const auto found = object.find(key)) value = static_cast<Enum>(found->choice(choices));
}

template <class Enum>
void write_choice(Json& json, const std::string& key, const std::vector<std::string>& choices,
                  Enum value, Enum unless) {
  if (value != unless) json[key] = choices[static_cast<std::size_t>(value)];
}

RotaryScaling read_scaling(JsonObject object) {
  RotaryScaling scaling;
  for (const auto& field : kScalingFields)
    scaling.*field.member = object.number_or(field.name, scaling.*field.member, field.limit);
  scaling.original_positions = object.integer_or("original_positions", scaling.original_positions,
                                                 limits::kTokens.or_zero());
  object.finish();
  return scaling;
}

Json write_scaling(const RotaryScaling& scaling) {
  const RotaryScaling usual;
  Json json;
  for (const auto& field : kScalingFields)
    if (scaling.*field.member != usual.*field.member) json[field.name] = scaling.*field.member;
  if (scaling.original_positions != usual.original_positions)
    json["original_positions"] = scaling.original_positions;
  return json;
}

LayerType read_type(const JsonValue& value) {
  JsonObject object(value);
  LayerType type;
  type.name = object.string("name");
  LayerShape& shape = type.shape;
  shape.kind = static_cast<LayerKind>(object.at("kind").choice(kKinds));
  read_choice(object, "attention", kAttentions, shape.attention);
  read_choice(object, "activation", kActivations, shape.activation);
  read_choice(object, "norm", kNorms, shape.norm);
  for (const SizeField& field : kSizeFields)
    shape.*field.member = object.integer_or(field.name, shape.*field.member, field.limit.or_zero());
  shape.padding_id =
      object.integer_or("padding_id", kNoPadding, {.low = kNoPadding, .high = limits::kRows.high});
  for (const FlagField& field : kFlagFields)
    shape.*field.member = object.boolean_or(field.name, shape.*field.member);
  for (const auto& field : kNumberFields)
    shape.*field.member = object.number_or(field.name, shape.*field.member, field.limit);
  if (const auto scaling = object.find("rotary_scaling"))
    shape.rotary_scaling = read_scaling(JsonObject(*scaling));
  object.finish();
  return type;
}

Json write_type(const LayerType& type) {
  const LayerShape& shape = type.shape;
  const LayerShape usual;
  Json json;
  json["name"] = type.name;
  json["kind"] = kKinds[static_cast<std::size_t>(shape.kind)];
  write_choice(json, "attention", kAttentions, shape.attention, usual.attention);
  write_choice(json, "activation", kActivations, shape.activation, usual.activation);
  write_choice(json, "norm", kNorms, shape.norm, usual.norm);
  for (const SizeField& field : kSizeFields)
    if (shape.*field.member != usual.*field.member) json[field.name] = shape.*field.member;
  if (shape.padding_id != kNoPadding) json["padding_id"] = shape.padding_id;
  for (const FlagField& field : kFlagFields)
    if (shape.*field.member != usual.*field.member) json[field.name] = shape.*field.member;
  for (const auto& field : kNumberFields)
    if (shape.*field.member != usual.*field.member) json[field.name] = shape.*field.member;
  if (shape.rotary_scaling != usual.rotary_scaling)
    json["rotary_scaling"] = write_scaling(shape.rotary_scaling);
  return json;
}

}  // namespace

Model model_from_braid(const Json& json, const std::string& source, std::int64_t sequence) {
  JsonObject object(JsonValue(json, source));
  expect_format(object, kFormat, kVersion);
  Model model;
  model.name = object.string("name");
  model.family = object.string_or("family", "braid");
  model.sequence = object.integer("sequence", limits::kTokens);
  std::vector<std::string> names;
  for (const JsonValue& value : object.array("types")) {
    model.types.push_back(read_type(value));
    names.push_back(model.types.back().name);
  }
  for (const JsonValue& value : object.array("layers")) {
    JsonObject run(value);
    const int type = static_cast<int>(run.at("type").choice(names));
    const std::int64_t count = run.integer("count", limits::kLayers);
    run.finish();
    if (static_cast<std::int64_t>(model.layers.size()) + count > limits::kLayers.high)
      value.fail("too many layers", fmt::format("give at most {} in all", limits::kLayers.high));
    model.layers.insert(model.layers.end(), static_cast<std::size_t>(count), type);
  }
  object.finish();
  verify(model, source);
  return sequence == 0 ? model : with_sequence(model, sequence);
}

Json to_json(const Model& model) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["name"] = model.name;
  if (model.family != "braid") json["family"] = model.family;
  json["sequence"] = model.sequence;
  json["types"] = Json::array();
  for (const LayerType& type : model.types) json["types"].push_back(write_type(type));
  json["layers"] = Json::array();
  for (std::size_t i = 0; i < model.layers.size();) {
    std::size_t end = i;
    while (end < model.layers.size() && model.layers[end] == model.layers[i]) ++end;
    Json run;
    run["type"] = model.types[static_cast<std::size_t>(model.layers[i])].name;
    run["count"] = end - i;
    json["layers"].push_back(std::move(run));
    i = end;
  }
  return json;
}

}  // namespace braid
