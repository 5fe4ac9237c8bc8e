// Rotary positions of a Hugging Face config. Up to transformers 4 the base is "rope_theta" and a
// dictionary "rope_scaling" holds the rest; from 5 on "rope_parameters" holds both.

#include <fmt/core.h>

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
      object.integer_or("original_max_position_embeddings", reach, {.low = 1, .high = kMaxCount});
  return scaling;
}

// The rotation pairs all of a head.
void require_whole_heads(const std::optional<JsonValue>& factor) {
  if (factor && factor->number() != 1)
    factor->fail(fmt::format("rotary positions on {} of each head are not known", factor->number()),
                 "plan a model that turns whole heads (a factor of 1)");
}

}  // namespace

Rotary Config::rotary(double usual_base) {
  Rotary rotary{.base = positive_or("rope_theta", usual_base)};
  require_whole_heads(find("partial_rotary_factor"));
  auto found = find("rope_scaling");
  if (!found) found = find("rope_parameters");
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
