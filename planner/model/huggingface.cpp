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
  return families()[model_type.choice(family_names())];
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

Config::Config(const Json& json, const std::string& source) : object_(JsonValue(json, source)) {}

std::optional<JsonValue> Config::find(const std::string& key) {
  auto found = object_.find(key);
  return found && !found->raw().is_null() ? found : std::nullopt;
}

std::int64_t Config::size(const std::string& key) {
  return object_.integer(key, {.low = 1, .high = kMaxCount});
}

std::int64_t Config::size_or(const std::string& key, std::int64_t fallback) {
  return object_.integer_or(key, fallback, {.low = 1, .high = kMaxCount});
}

std::int64_t Config::count_or(const std::string& key, std::int64_t fallback) {
  return object_.integer_or(key, fallback, {.low = 0, .high = kMaxCount});
}

std::vector<std::int64_t> Config::sizes(const std::string& key) {
  std::vector<std::int64_t> all;
  for (const JsonValue& value : object_.array(key))
    all.push_back(value.integer({.low = 1, .high = kMaxWidth}));
  if (all.empty()) fail(key, "the list is empty", "give one number for each stage");
  return all;
}

double Config::number_or(const std::string& key, double fallback) {
  const auto found = find(key);
  return found ? found->number(0, static_cast<double>(kMaxWidth)) : fallback;
}

double Config::positive_or(const std::string& key, double fallback) {
  const auto found = find(key);
  return found ? positive(*found) : fallback;
}

bool Config::flag_or(const std::string& key, bool fallback) {
  return object_.boolean_or(key, fallback);
}

std::string Config::string_or(const std::string& key, const std::string& fallback) {
  const auto found = find(key);
  return found ? found->string() : fallback;
}

std::string Config::either(const std::string& key, const std::string& other) const {
  return !has(key) && has(other) ? other : key;
}

std::int64_t Config::head_dim(std::int64_t hidden, const std::string& heads_key) {
  const std::int64_t heads = size(heads_key);
  if (hidden % heads != 0)
    fail(heads_key, fmt::format("{} heads do not divide the hidden size {}", heads, hidden),
         fmt::format("choose a divisor of {}", hidden));
  return hidden / heads;
}

Activation Config::plain_activation(const std::string& key, const std::string& fallback) {
  const std::string name = string_or(key, fallback);
  if (name == "relu") return Activation::relu;
  if (const auto gelu = gelu_of(name)) return *gelu;
  fail(key, fmt::format("the activation '{}' is not known without a gate", name),
       "choose gelu, gelu_new (or another name of the tanh formula) or relu");
}

Activation Config::gated_activation(const std::string& key, const std::string& fallback) {
  const std::string name = string_or(key, fallback);
  if (name == "silu" || name == "swish") return Activation::swiglu;
  if (const auto gelu = gelu_of(name))
    return *gelu == Activation::gelu ? Activation::geglu : Activation::geglu_tanh;
  fail(key, fmt::format("the activation '{}' is not known with a gate", name),
       "choose silu or gelu, gelu_new (or another name of the tanh formula)");
}

int Config::layers(const std::string& key) {
  return static_cast<int>(object_.integer(key, {.low = 1, .high = kMaxLayers}));
}

int Config::layers_or(const std::string& key, int fallback) {
  return find(key) ? layers(key) : fallback;
}

std::int64_t Config::labels() {
  if (find("num_labels")) return size("num_labels");
  const auto named = find("id2label");
  if (!named) return 2;
  return static_cast<std::int64_t>(JsonObject(*named).entries().size());
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

}  // namespace

Model model_from_huggingface(const Json& json, const std::string& source, std::int64_t sequence) {
  JsonObject object(JsonValue(json, source));
  const JsonValue type = object.at("model_type");
  const huggingface::Family family = huggingface::family_of(type);
  huggingface::Config config(json, source);
  Model model = family.read(config);
  model.family = family.model_type;
  model.name = huggingface::model_name(source, model.family);
  verify(model, source);
  require_parameters(object, model);
  return sequence == 0 ? model : with_sequence(model, sequence);
}

}  // namespace braid
