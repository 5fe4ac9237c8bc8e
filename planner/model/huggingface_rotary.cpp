// Rotary positions of a Hugging Face config. Up to transformers 4 the base is "rope_theta" and a
// dictionary "rope_scaling" holds the rest; from 5 on "rope_parameters" holds both.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "planner/model/fields.h"
#include "planner/model/huggingface.h"

namespace braid::huggingface {

namespace {

std::optional<JsonValue> present(JsonObject& object, const std::string& key) {
  auto found = object.find(key);
  return found && !found->raw().is_null() ? found : std::nullopt;
}

RotaryScaling scaling_of(JsonObject& object, std::int64_t reach) {
  auto type = present(object, "rope_type");
  if (!type) type = present(object, "type");
  const std::string name = type ? type->string() : "default";
  if (name == "default") return {};
  if (name != "linear" && name != "llama3")
    type->fail(fmt::format("the rotary scaling '{}' is not known", name),
               "choose default, linear or llama3");
  RotaryScaling scaling;
  scaling.factor = positive(object.at("factor"));
  if (name == "linear") return scaling;
  scaling.low_frequency = positive(object.at("low_freq_factor"));
  scaling.high_frequency = positive(object.at("high_freq_factor"));
  scaling.original_positions =
      object.integer_or("original_max_position_embeddings", reach, limits::kTokens);
  return scaling;
}

// The rotation pairs all of a head.
void require_whole_heads(const std::optional<JsonValue>& factor) {
  if (factor && factor->number() != 1)
    factor->fail(fmt::format("rotary positions on {} of each head are not known", factor->number()),
                 "plan a model that turns whole heads (a factor of 1)");
}

}  // namespace

std::vector<std::string> unknown_rotary_keys(JsonObject& config) {
  constexpr std::array<std::string_view, 8> kKnown = {
      "rope_type",        "type",
      "rope_theta",       "partial_rotary_factor",
      "factor",           "low_freq_factor",
      "high_freq_factor", "original_max_position_embeddings"};
  std::vector<std::string> unknown;
  for (const char* dictionary : {"rope_scaling", "rope_parameters"}) {
    const auto found = config.find(dictionary);
    if (!found || !found->raw().is_object()) continue;
    for (const auto& [name, value] : found->raw().items())
      if (std::ranges::find(kKnown, name) == kKnown.end())
        unknown.push_back(fmt::format("{}.{}", dictionary, name));
  }
  return unknown;
}

Rotary Config::rotary() {
  Rotary rotary{.base = positive_number("rope_theta")};
  require_whole_heads(find_value("partial_rotary_factor"));
  auto found = find_value("rope_scaling");
  if (!found || found->raw().empty()) found = find_value("rope_parameters");
  if (!found) return rotary;
  JsonObject object(*found);
  for (const auto& [key, value] : object.entries())
    if (value.raw().is_object())
      value.fail("rotary positions that differ between layers are not known",
                 "give one set of numbers for all layers");
  require_whole_heads(present(object, "partial_rotary_factor"));
  if (const auto base = present(object, "rope_theta")) rotary.base = positive(*base);
  rotary.scaling = scaling_of(object, size("max_position_embeddings"));
  return rotary;
}

}  // namespace braid::huggingface
