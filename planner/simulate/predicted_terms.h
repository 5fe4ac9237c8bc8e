#pragma once
// A prediction in the terms that a run is measured in.

#include <vector>

#include "planner/plan/plan.h"
#include "planner/plan/step_terms.h"

namespace braid {

// By stage, of one of its devices. The plan must be priced. A stage's terms sum to the iteration
// that the simulator plays.
std::vector<StepTerms> predicted_terms(const Plan& plan);
StepTerms predicted_terms(const Plan& plan, int stage);

}  // namespace braid
