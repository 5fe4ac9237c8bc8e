#pragma once
// Infeasible is an answer: what binds, where, and the smallest change that fits.

#include <functional>
#include <optional>

#include "planner/search/build_problem.h"
#include "planner/search/search.h"

namespace braid {

// The plan whose fullest stage exceeds its budget least, of the configurations whose layers add up
// to least; or the first of them that fits, which the search may have missed as it adds up what
// layers need one by one. None: no plan is legal.
std::optional<Plan> leanest_plan(const SearchContext& context, const DecisionTree& tree);

// Where no plan of the tree fits. `complete` fills in what a
// plan carries beside its layers.
Infeasible explain_infeasible(const SearchContext& context, const DecisionTree& tree,
                              const Profile* profile, const SearchOptions& options,
                              const std::function<void(Plan&)>& complete);

}  // namespace braid
