// What `braid train` trains on.

#include <fmt/core.h>

#include "cli/train.h"
#include "planner/core/error.h"

namespace braid::cli {
namespace {

std::string after(const std::string& text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : "";
}

}  // namespace

std::shared_ptr<const train::Dataset> open_data(const std::string& choice, const Model& model,
                                                std::uint64_t seed) {
  if (choice == "synthetic") return train::synthetic(model.types.front().shape.vocab, seed);
  if (const std::string file = after(choice, "text:"); !file.empty())
    return train::text_file(file, model.sequence);
  if (const std::string file = after(choice, "megatron:"); !file.empty())
    return train::megatron(file, model.sequence);
  throw Error({.what = fmt::format("'{}' names no data", choice),
               .where = "--data",
               .fix = "choose synthetic, text:FILE or megatron:PREFIX"});
}

}  // namespace braid::cli
