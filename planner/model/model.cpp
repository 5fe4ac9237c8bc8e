#include "planner/model/model.h"

#include <fmt/core.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/model/fields.h"

namespace braid {

std::int64_t parameters(const Model& model) {
  std::int64_t total = 0;
  for (int i = 0; i < model.num_layers(); ++i) total += parameters(model.type_of(i).shape);
  return total;
}

Flops training_flops(const Model& model) {
  Flops forward;
  for (int i = 0; i < model.num_layers(); ++i)
    forward += forward_flops(model.type_of(i).shape).total();
  return 3.0 * forward;
}

Model with_sequence(const Model& model, std::int64_t sequence) {
  if (sequence == model.sequence) return model;
  const auto fail = [&](std::string what, std::string fix) {
    throw Error({.what = std::move(what),
                 .where = fmt::format("{}: sequence", model.name),
                 .fix = std::move(fix)});
  };
  if (sequence < 1 || sequence > limits::kTokens.high)
    fail(fmt::format("a sequence of {} tokens is out of range", sequence),
         fmt::format("ask for 1 to {} tokens", limits::kTokens.high));
  Model changed = model;
  changed.sequence = sequence;
  for (LayerType& type : changed.types) {
    LayerShape& shape = type.shape;
    if (shape.patch_inputs > 0)
      fail(fmt::format("an image of this model is always {} tokens", model.sequence),
           "leave the sequence out, or change image_size in the model's config");
    const std::int64_t reach = shape.positions - shape.position_offset;
    if (shape.positions > 0 && sequence > reach)
      fail(fmt::format("a sequence of {} tokens is longer than the {} learned positions", sequence,
                       reach),
           fmt::format("ask for at most {} tokens", reach));
    // A decoder of another length than the encoder's keeps its own.
    if (shape.tokens == model.sequence) shape.tokens = sequence;
    if (shape.cross_tokens == model.sequence) shape.cross_tokens = sequence;
    if (shape.carried_tokens == model.sequence) shape.carried_tokens = sequence;
  }
  return changed;
}

Model read_model(const std::filesystem::path& file, std::int64_t sequence) {
  return model_from_json(read_json(file), file.string(), sequence);
}

Model model_from_json(const Json& json, const std::string& source, std::int64_t sequence) {
  const JsonObject object(JsonValue(json, source));
  if (object.has("format")) return model_from_braid(json, source, sequence);
  if (object.has("model_type")) return model_from_huggingface(json, source, sequence);
  object.fail("this is neither a Hugging Face config nor a Braid model",
              "a config.json has \"model_type\", a Braid model has \"format\": \"braid.model\"");
}

}  // namespace braid
