// What `braid train` trains on.

#include <fmt/core.h>

#include <algorithm>

#include "cli/train.h"
#include "planner/core/error.h"
#include "runtime/train/corrupted_spans.h"
#include "runtime/train/objective.h"

namespace braid::cli {
namespace {

std::string after(const std::string& text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : "";
}

std::shared_ptr<const train::Dataset> synthetic_data(const Model& model, std::uint64_t seed) {
  const std::int64_t vocab = model.types.front().shape.vocab;
  switch (train::objective_of(model)) {
    case train::Objective::next_token:
      return train::synthetic(vocab, seed);
    case train::Objective::masked_tokens:  // the last id is left to be the mask
      return train::synthetic(vocab - 1, seed);
    case train::Objective::corrupted_spans:  // the last ids are left to stand for spans
      return train::synthetic(std::max<std::int64_t>(1, vocab - train::num_sentinels(model)), seed);
    case train::Objective::image_class:
      return train::synthetic_images(train::image_shape_of(model),
                                     model.type_of(model.num_layers() - 1).shape.vocab, seed);
  }
  internal_failure("unknown objective", std::source_location::current());
}

}  // namespace

std::shared_ptr<const train::Dataset> open_data(const std::string& choice, const Model& model,
                                                std::uint64_t seed) {
  if (choice == "synthetic") return synthetic_data(model, seed);
  if (const std::string file = after(choice, "text:"); !file.empty())
    return train::text_file(file, model.sequence);
  if (const std::string file = after(choice, "megatron:"); !file.empty())
    return train::megatron(file, model.sequence);
  if (const std::string file = after(choice, "lines:"); !file.empty())
    return train::text_lines(file, model.sequence);
  if (const std::string file = after(choice, "images:"); !file.empty())
    return train::image_file(file);
  throw Error({.what = fmt::format("'{}' names no data", choice),
               .where = "--data",
               .fix = "choose synthetic, text:FILE, lines:FILE, megatron:PREFIX or images:FILE"});
}

}  // namespace braid::cli
