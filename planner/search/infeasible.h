#pragma once
// Infeasible is an answer: what binds, where, and the smallest change that fits.

#include <functional>

#include "planner/search/build_problem.h"
#include "planner/search/search.h"

namespace braid {

// What the algorithm of `options` offers counts. `complete` fills in what a plan carries beside its
// layers.
Infeasible explain_infeasible(const SearchContext& context, const DecisionTree& tree,
                              const Profile* profile, const SearchOptions& options,
                              const std::function<void(Plan&)>& complete);

}  // namespace braid
