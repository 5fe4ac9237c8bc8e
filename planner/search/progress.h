#pragma once
// How far a search has come, and what ends one early.

#include <optional>
#include <string_view>

#include "planner/core/units.h"

namespace braid {

struct SearchProgress {
  std::string_view phase;       // what is under way: "search configurations"
  std::optional<Seconds> best;  // iteration of the fastest plan so far; never rises
  // Of `best` over the lower bound so far, as a fraction; none before the whole space is bounded.
  std::optional<double> gap;
  double seconds = 0;  // since the search began
};

// What ended a search.
enum class Ending {
  complete,  // nothing was left to do
  signal,    // SearchOptions::stop
  limit,     // SearchOptions::time_limit
  gap,       // the plan was proven to be within SearchOptions::enough_gap
};
std::string_view name_of(Ending ending);

}  // namespace braid
