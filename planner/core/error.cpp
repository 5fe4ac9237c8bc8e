#include "planner/core/error.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace braid {

namespace {
std::string message(const Mistake& mistake) {
  std::string text = mistake.what;
  if (!mistake.where.empty()) text += fmt::format("\n  where: {}", mistake.where);
  if (!mistake.fix.empty()) text += fmt::format("\n  fix:   {}", mistake.fix);
  return text;
}
}  // namespace

Error::Error(Mistake mistake)
    : std::runtime_error(message(mistake)), mistake_(std::move(mistake)) {}

void internal_failure(std::string_view what, std::source_location where) {
  fmt::print(stderr, "braid: internal error: {} ({}:{}); please report it\n", what,
             where.file_name(), where.line());
  std::abort();
}

}  // namespace braid
