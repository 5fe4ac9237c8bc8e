#pragma once
// What a rank holds, in the terms of a plan's prediction.

#include <span>
#include <vector>

#include "planner/plan/held_memory.h"
#include "planner/plan/plan.h"
#include "runtime/train/worker.h"

namespace braid::train {

// Of this rank, up to now.
HeldMemory held_by(Worker& worker, at::Device device);

// Of all ranks, in their order. Collective.
std::vector<HeldMemory> gather_held(const HeldMemory& mine, at::Device device, comm::Group& world);

// By stage, each term of the rank that has most of it.
std::vector<HeldMemory> largest_of_stages(std::span<const HeldMemory> ranks, const Plan& plan);

}  // namespace braid::train
