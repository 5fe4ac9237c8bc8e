#pragma once
// What one device of a stage allocates and frees during a step, so that what its allocator reserves
// follows from a plan.

#include <vector>

#include "planner/plan/plan.h"
#include "planner/simulate/allocator.h"

namespace braid {

// States first, then `steps` steps of the plan's schedule: saved tensors of each micro-batch,
// gathered weights, short-lived tensors of the layer at work, gradients, and messages that are held
// until as many have followed as there are stages. Sizes are those of the plan's prediction, cut
// into tensors as the model's shapes say.
std::vector<MemoryEvent> stage_allocations(const Plan& plan, int stage, int steps = 2);

// Peaks of a stage's allocator. Context and communicators are not the allocator's.
ReplayedMemory stage_reserved(const Plan& plan, int stage);

}  // namespace braid
