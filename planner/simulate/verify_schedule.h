#pragma once
// Proves a schedule before anybody plays it: complete, in an order its data allows, and free of
// deadlock.

#include <cstddef>
#include <optional>
#include <string>

#include "planner/simulate/schedule.h"

namespace braid {

struct ScheduleFault {
  std::string what;
  int stage = 0;
  std::size_t op = 0;  // index in the stage's list; its length where something is missing
};

// The first fault, or nothing for a sound schedule. Sound means: every chunk and micro-batch runs
// forward and backward (whole, or input and then weights) exactly once, after its input has come;
// every send has its receive, in the same order on each channel; one reduce and one update end each
// list; and no stage ever waits for one that waits for it.
std::optional<ScheduleFault> verify_schedule(const Schedule& schedule, const PipelineShape& shape);

}  // namespace braid
