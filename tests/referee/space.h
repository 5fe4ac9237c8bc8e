#pragma once
// Spaces of plans, enumerated from their definition.

#include <functional>

#include "planner/search/search.h"

namespace braid::referee {

struct SearchProblem {
  Model model;
  Cluster cluster;
  SearchOptions options;
};

// One plan without stages for each pipeline degree that divides the devices, number of
// micro-batches that divides the batch, schedule and mesh order that the options allow. All
// schedules are one where there is one stage. Interleaved chunks are equal numbers of equal blocks.
std::vector<Plan> configurations(const SearchProblem& problem);

// Calls with every cut of the model into the stages of a configuration and every legal strategy of
// each layer.
using VisitStages = std::function<void(const std::vector<StagePlan>&)>;
void for_each_plan(const SearchProblem& problem, const Plan& configuration,
                   const VisitStages& visit);

// How many plans that are; infinite where it takes a real number to say.
double count_plans(const SearchProblem& problem, const Plan& configuration);

}  // namespace braid::referee
