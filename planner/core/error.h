#pragma once
// Three failures, three channels: an infeasible choice is a value, a user's mistake is an Error
// that says what, where and how to fix it, and our own bug is an internal_check that aborts.

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace braid {

struct Mistake {
  std::string what;   // what is wrong
  std::string where;  // file, JSON path or flag
  std::string fix;    // what the user can do about it
};

class Error : public std::runtime_error {
 public:
  explicit Error(Mistake mistake);
  const Mistake& mistake() const { return mistake_; }

 private:
  Mistake mistake_;
};

[[noreturn]] void internal_failure(std::string_view what, std::source_location where);

// For invariants that only a bug of ours can break; never for input.
inline void internal_check(bool holds, std::string_view what,
                           std::source_location where = std::source_location::current()) {
  if (!holds) internal_failure(what, where);
}

}  // namespace braid
