#pragma once
// What no training run can be, whatever its source says.

#include <optional>
#include <string>

#include "planner/validate/run.h"
#include "planner/validate/shape.h"

namespace braid {

// Why a run of this model cannot have been as its row says, in words that follow "it cannot be: ";
// nothing where it can. Rows that it lets pass are priced in bounded time and memory.
std::optional<std::string> why_impossible(const MeasuredRun& run, const ModelShape& model);

}  // namespace braid
