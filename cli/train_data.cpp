// What `braid train` trains on.

#include <fmt/core.h>

#include <algorithm>

#include "cli/train.h"
#include "planner/core/error.h"
#include "runtime/train/objective.h"

namespace braid::cli {
namespace {

std::string after(const std::string& text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : "";
}

std::shared_ptr<const train::Dataset> synthetic_data(const Model& model, std::uint64_t seed) {
  const std::int64_t limit = train::token_limit(model, {});
  if (train::objective_of(model) == train::Objective::image_class)
    return train::synthetic_images(image_shape_of(model), limit, seed);
  return train::synthetic(std::max<std::int64_t>(1, limit), seed);
}

// Models that predict the next token or a class hide none.
void expect_mask_used(const Model& model, std::optional<std::int64_t> mask_token) {
  const train::Objective objective = train::objective_of(model);
  const bool hides = objective == train::Objective::masked_tokens ||
                     objective == train::Objective::corrupted_spans;
  if (!mask_token || hides) return;
  throw Error({.what = fmt::format("'{}' is not trained on hidden tokens", model.name),
               .where = "--mask-token",
               .fix = "leave it out: it is for BERT, and for the spans of T5"});
}

}  // namespace

std::shared_ptr<const train::Dataset> open_data(const std::string& choice, const Model& model,
                                                std::uint64_t seed,
                                                std::optional<std::int64_t> mask_token) {
  expect_mask_used(model, mask_token);
  if (choice == "synthetic") return synthetic_data(model, seed);
  if (const std::string file = after(choice, "text:"); !file.empty())
    return train::text_file(file, model.sequence);
  if (const std::string file = after(choice, "megatron:"); !file.empty())
    return train::megatron(file, model.sequence,
                           train::token_limit(model, {.mask_token = mask_token}));
  if (const std::string file = after(choice, "lines:"); !file.empty())
    return train::text_lines(file, model.sequence);
  if (const std::string file = after(choice, "images:"); !file.empty())
    return train::image_file(file);
  throw Error({.what = fmt::format("'{}' names no data", choice),
               .where = "--data",
               .fix = "choose synthetic, text:FILE, lines:FILE, megatron:PREFIX or images:FILE"});
}

}  // namespace braid::cli
