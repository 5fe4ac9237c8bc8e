// Reads a Hugging Face config.json as downloaded. Three keys are Braid's own and optional there:
// "braid_sequence", the tokens of one sample, "braid_decoder_sequence", the decoder's tokens of an
// encoder-decoder where they differ, and "braid_parameters", how many the published model has.

#include "planner/model/huggingface.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/model/fields.h"
#include "planner/model/huggingface_keys.h"

namespace braid {

namespace huggingface {

namespace {

std::vector<Family> families() {
  std::vector<Family> all;
  for (const std::span<const Family> table : {decoders(), encoders()})
    all.insert(all.end(), table.begin(), table.end());
  std::ranges::sort(all, {}, [](const Family& f) { return std::string_view(f.model_type); });
  return all;
}

Family family_of(const JsonValue& model_type) {
  const std::string name = model_type.string();
  for (const Family& family : families())
    if (name == family.model_type) return family;
  model_type.fail(fmt::format("configs of the model family '{}' are not read", name),
                  fmt::format("the families are {}; write what else is made of Transformer layers, "
                              "mixtures of experts too, as a braid.model (docs/add-a-model.md)",
                              join(family_names(), ", ")));
}

// Gelu by the error function, or by one of the spellings of the tanh formula.
std::optional<Activation> gelu_of(const std::string& name) {
  if (name == "gelu" || name == "gelu_python") return Activation::gelu;
  constexpr std::array<std::string_view, 5> kTanh = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast",
                                                     "gelu_python_tanh", "gelu_accurate"};
  if (std::ranges::find(kTanh, name) != kTanh.end()) return Activation::gelu_tanh;
  return std::nullopt;
}

// "configs/models/llama2-7b.json" is llama2-7b, and so is "llama2-7b/config.json".
std::string model_name(const std::string& source, const std::string& family) {
  const std::filesystem::path path(source);
  std::string name = path.stem().string();
  if (name == "config") name = path.parent_path().filename().string();
  return name.empty() ? family : name;
}

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.model_type);
  return names;
}

double positive(const JsonValue& value) {
  const double number = value.number();
  if (number <= 0) value.fail(fmt::format("{} is out of range", number), "give a positive number");
  return number;
}

Config::Config(const Json& json, const std::string& source, std::string_view family)
    : object_(JsonValue(json, source)), family_(family) {
  refuse_fixed_keys();
}

namespace {

bool is_falsy(const Json& value) {
  return value.is_null() || value == false || value == 0 ||
         ((value.is_structured() || value.is_string()) && value.empty());
}

}  // namespace

void Config::refuse_fixed_keys() {
  for (const auto& [name, value] : object_.entries()) {
    const ConfigKey* key = find_key(family_, name);
    if (key == nullptr || key->use != KeyUse::fixed) continue;
    const Json usual = Json::parse(key->usual);
    if (value.raw() == usual || (is_falsy(usual) && is_falsy(value.raw()))) continue;
    const bool experts = key->reason == "experts";
    value.fail(
        fmt::format("this asks for {}, which a {} model here does not have", key->reason, family_),
        experts ? "write the model as a braid.model, whose blocks may have experts "
                  "(docs/add-a-model.md)"
                : fmt::format("plan a model with {} here", key->usual));
  }
}

std::optional<JsonValue> Config::find(const std::string& key) {
  const ConfigKey* known = find_key(family_, key);
  internal_check(known != nullptr && known->use == KeyUse::read, "readers ask for listed keys");
  std::optional<JsonValue> found = object_.find(key);
  for (const ConfigKey& other : keys_of(family_)) {
    if (other.use != KeyUse::alias || other.usual != key) continue;
    const auto value = object_.find(std::string(other.name));
    if (!value) continue;
    if (found && found->raw() != value->raw())
      value->fail(fmt::format("it says otherwise than '{}', which is the same", key),
                  "leave one of the two out");
    found = value;
  }
  if (found || known->usual.empty()) return found;
  const Json& usual = usual_.try_emplace(key, Json::parse(known->usual)).first->second;
  return JsonValue(usual, fmt::format("{}: {} (its default)", object_.path(), key));
}

std::optional<JsonValue> Config::find_value(const std::string& key) {
  auto found = find(key);
  if (found && !found->raw().is_null()) return found;
  const std::string_view usual = find_key(family_, key)->usual;
  if (usual.empty() || usual == "null") return std::nullopt;
  const Json& parsed = usual_.try_emplace(key, Json::parse(usual)).first->second;
  return JsonValue(parsed, fmt::format("{}: {} (its default)", object_.path(), key));
}

JsonValue Config::at(const std::string& key) {
  if (const auto found = find_value(key)) return *found;
  if (object_.has(key)) fail(key, fmt::format("'{}' is null, and has no default", key), "give it");
  return object_.at(key);
}

std::int64_t Config::size(const std::string& key) { return at(key).integer(limits::kTokens); }

std::optional<std::int64_t> Config::optional_size(const std::string& key) {
  const auto found = find(key);
  if (!found || found->raw().is_null()) return std::nullopt;
  return found->integer(limits::kTokens);
}

std::optional<std::string> Config::optional_text(const std::string& key) {
  const auto found = find(key);
  if (!found || found->raw().is_null()) return std::nullopt;
  return found->string();
}

std::optional<bool> Config::optional_flag(const std::string& key) {
  const auto found = find(key);
  if (!found || found->raw().is_null()) return std::nullopt;
  return found->boolean();
}

std::int64_t Config::count(const std::string& key) {
  return at(key).integer(limits::kTokens.or_zero());
}

std::vector<std::int64_t> Config::sizes(const std::string& key) {
  std::vector<std::int64_t> all;
  for (const JsonValue& value : at(key).array()) all.push_back(value.integer(limits::kWidth));
  if (all.empty()) fail(key, "the list is empty", "give one number for each stage");
  return all;
}

double Config::number(const std::string& key) {
  return at(key).number(0, static_cast<double>(limits::kWidth.high));
}

double Config::positive_number(const std::string& key) { return positive(at(key)); }

bool Config::flag(const std::string& key) { return at(key).boolean(); }

std::string Config::text(const std::string& key) { return at(key).string(); }

std::int64_t Config::sequence(std::int64_t usual) {
  return optional_size("braid_sequence").value_or(usual);
}

std::int64_t Config::head_dim(std::int64_t hidden, const std::string& heads_key) {
  const std::int64_t heads = size(heads_key);
  if (hidden % heads != 0)
    fail(heads_key, fmt::format("{} heads do not divide the hidden size {}", heads, hidden),
         fmt::format("choose a divisor of {}", hidden));
  return hidden / heads;
}

std::int64_t Config::padding_id(std::int64_t vocab) {
  const auto found = find("pad_token_id");
  if (!found || found->raw().is_null()) return kNoPadding;
  const std::int64_t id = found->integer();
  if (id < -vocab || id >= vocab)
    found->fail(fmt::format("{} is no row of the {} that the vocabulary has", id, vocab),
                fmt::format("choose a token below {}, or null for no padding", vocab));
  return id < 0 ? vocab + id : id;
}

std::vector<bool> Config::windowed_layers(int layers) {
  const auto found = find_value("layer_types");
  if (!found) return {};
  std::vector<bool> windowed;
  for (const JsonValue& type : found->array()) {
    const std::string name = type.string();
    windowed.push_back(name == "sliding_attention");
    if (!windowed.back() && name != "full_attention")
      type.fail(fmt::format("layers of the type '{}' are not known", name),
                "choose full_attention or sliding_attention");
  }
  if (windowed.size() != static_cast<std::size_t>(layers))
    found->fail(fmt::format("{} types for {} layers", windowed.size(), layers),
                "give one for each layer of num_hidden_layers");
  return windowed;
}

Activation Config::activation_named(const std::string& name, bool gated,
                                    const std::string& key) const {
  const auto gelu = gelu_of(name);
  if (!gated) {
    if (name == "relu") return Activation::relu;
    if (gelu) return *gelu;
    fail(key, fmt::format("the activation '{}' is not known without a gate", name),
         "choose gelu, gelu_new (or another name of the tanh formula) or relu");
  }
  if (name == "silu" || name == "swish") return Activation::swiglu;
  if (gelu) return *gelu == Activation::gelu ? Activation::geglu : Activation::geglu_tanh;
  fail(key, fmt::format("the activation '{}' is not known with a gate", name),
       "choose silu or gelu, gelu_new (or another name of the tanh formula)");
}

Activation Config::plain_activation(const std::string& key) {
  return activation_named(text(key), false, key);
}

Activation Config::gated_activation(const std::string& key) {
  return activation_named(text(key), true, key);
}

int Config::layers(const std::string& key) {
  return static_cast<int>(at(key).integer(limits::kLayers));
}

std::int64_t Config::labels() {
  const auto kind = optional_text("problem_type");
  if (kind && *kind != "single_label_classification")
    fail("problem_type", fmt::format("'{}' has a loss that is not known", *kind),
         "train a classifier of one label a sample (single_label_classification)");
  const auto named = find_value("id2label");
  const auto stated = optional_size("num_labels");
  const std::int64_t labels =
      named ? static_cast<std::int64_t>(JsonObject(*named).entries().size()) : stated.value_or(2);
  if (stated && *stated != labels)
    fail("num_labels", fmt::format("{} labels, but id2label has {}", *stated, labels),
         "make the two agree, or leave one out");
  if (labels < 2)
    fail(named ? "id2label" : "num_labels",
         fmt::format("a classifier of {} label, which transformers trains by regression", labels),
         "give at least 2 labels");
  return labels;
}

std::int64_t Config::side(const std::string& key) {
  const JsonValue value = at(key);
  if (!value.raw().is_array()) return value.integer(limits::kPixels);
  const std::vector<JsonValue> sides = value.array();
  if (sides.size() != 2 || sides[0].integer(limits::kPixels) != sides[1].integer(limits::kPixels))
    value.fail("only square images and patches are known", "give one number, or two equal ones");
  return sides[0].integer(limits::kPixels);
}

void Config::fail(const std::string& key, std::string what, std::string fix) const {
  throw Error({.what = std::move(what),
               .where = fmt::format("{}: {}", object_.path(), key),
               .fix = std::move(fix)});
}

Model assemble(const std::vector<Run>& runs) {
  Model model;
  for (const Run& run : runs) {
    const int index = static_cast<int>(model.types.size());
    model.types.push_back(run.type);
    model.layers.insert(model.layers.end(), static_cast<std::size_t>(run.count), index);
  }
  model.sequence = model.types.front().shape.tokens;
  return model;
}

}  // namespace huggingface

namespace {

// Shapes that were read wrong rarely add up to the published size.
void require_parameters(JsonObject& config, const Model& model) {
  const auto stated = config.find("braid_parameters");
  const std::int64_t counted = parameters(model);
  if (stated && stated->integer() != counted)
    stated->fail(
        fmt::format("the config's layers have {} parameters, not {}", counted, stated->integer()),
        "compare the config with the published one, or leave the key out");
}

bool is_hugging_face(const JsonObject& object) {
  return object.has("model_type") && !object.has("format");
}

// A class whose weights Braid's model has, with this head or without one.
bool is_expected(const std::string& architecture, std::string_view family) {
  return architecture == huggingface::architecture_of(family) || architecture.ends_with("Model") ||
         architecture.ends_with("ForPreTraining");
}

}  // namespace

std::vector<std::string> config_warnings(const Json& json, const std::string& source) {
  JsonObject object(JsonValue(json, source));
  if (!is_hugging_face(object)) return {};
  const std::string family = huggingface::family_of(object.at("model_type")).model_type;
  std::vector<std::string> unknown, rates, warnings;
  for (const auto& [name, value] : object.entries()) {
    const huggingface::ConfigKey* key = huggingface::find_key(family, name);
    if (key == nullptr) {
      unknown.push_back(name);
    } else if (key->use == huggingface::KeyUse::dropout && value.raw().is_number() &&
               value.raw() != 0) {
      rates.push_back(fmt::format("{} {}", name, value.raw().dump()));
    }
  }
  for (const std::string& name : huggingface::unknown_rotary_keys(object)) unknown.push_back(name);
  if (!unknown.empty())
    warnings.push_back(fmt::format("{}: keys that are not known for {} are ignored: {}", source,
                                   family, join(unknown, ", ")));
  if (!rates.empty())
    warnings.push_back(
        fmt::format("{}: dropout is not taken from the config but from train --dropout: {}", source,
                    join(rates, ", ")));
  if (const auto found = object.find("architectures"); found && !found->raw().is_null())
    for (const JsonValue& name : found->array())
      if (!is_expected(name.string(), family))
        warnings.push_back(
            fmt::format("{}: the model is read as {}, not as the {} that "
                        "\"architectures\" names",
                        source, huggingface::architecture_of(family), name.string()));
  return warnings;
}

Model model_from_huggingface(const Json& json, const std::string& source, std::int64_t sequence) {
  JsonObject object(JsonValue(json, source));
  const JsonValue type = object.at("model_type");
  const huggingface::Family family = huggingface::family_of(type);
  huggingface::Config config(json, source, family.model_type);
  Model model = family.read(config);
  model.family = family.model_type;
  model.name = huggingface::model_name(source, model.family);
  verify(model, source);
  require_parameters(object, model);
  return sequence == 0 ? model : with_sequence(model, sequence);
}

}  // namespace braid
