#include "planner/model/image.h"

#include <fmt/core.h>

#include <cmath>

#include "planner/core/error.h"

namespace braid {

namespace {

std::int64_t num_patches(const LayerShape& embedding) {
  return embedding.tokens - (embedding.class_token ? 1 : 0);
}

}  // namespace

std::int64_t whole_root(std::int64_t square) {
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(square))));
  return side * side == square ? side : 0;
}

std::int64_t patches_across(const Model& model) {
  return whole_root(num_patches(model.type_of(0).shape));
}

ImageShape image_shape_of(const Model& model) {
  const LayerShape& embedding = model.type_of(0).shape;
  const std::int64_t across = patches_across(model);
  for (const std::int64_t channels : {3, 1}) {
    if (across == 0 || embedding.patch_inputs % channels != 0) continue;
    if (const std::int64_t patch = whole_root(embedding.patch_inputs / channels); patch > 0)
      return {.channels = channels, .side = across * patch};
  }
  throw Error({.what = fmt::format("{} patches of {} values are no square image of 3 channels or 1",
                                   num_patches(embedding), embedding.patch_inputs),
               .where = fmt::format("model '{}'", model.name),
               .fix = "train a model of square images"});
}

}  // namespace braid
