#pragma once
// The answer for programs. Its keys are an interface: add, never rename.

#include "planner/core/json_fwd.h"
#include "planner/search/search.h"

namespace braid {

Json result_json(const SearchResult& result);
// All figures of a priced plan that its text has: speed, MFU, bounds, where the time goes, memory
// of each stage by part.
Json predicted_json(const Plan& plan);
// The same for a plan by itself: without "search" and "alternatives".
Json plan_answer_json(const Plan& plan);
// The same for a plan that does not fit.
Json misfit_json(const Infeasible& infeasible);

}  // namespace braid
