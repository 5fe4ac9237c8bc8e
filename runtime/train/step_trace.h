#pragma once
// What all ranks recorded of their steps, together. Every function is collective over the world.

#include <filesystem>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/parallel/site.h"
#include "runtime/parallel/step_record.h"

namespace braid::train {

// By stage: means over its ranks and over the steps. The same on every rank.
std::vector<StepTerms> gather_terms(const std::vector<parallel::StepRecord>& steps,
                                    const Plan& plan, at::Device device, comm::Group& world);

// Rank 0 writes what all ranks recorded, a process for each.
void write_trace(const std::filesystem::path& file, const std::vector<parallel::StepRecord>& steps,
                 const Plan& plan, at::Device device, comm::Group& world);

}  // namespace braid::train
