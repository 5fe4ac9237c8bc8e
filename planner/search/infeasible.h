#pragma once
// Infeasible is an answer: what binds, where, and the smallest change that fits.

#include <functional>
#include <optional>

#include "planner/search/build_problem.h"
#include "planner/search/search.h"

namespace braid {

// The plan whose fullest stage exceeds its budget least, of those that add up to least; or the
// first that fits, which the search may have missed as it adds up what layers need one by one.
// `walks`: neighbours of the best are tried too, which may leave the space of a baseline. None: no
// plan is legal.
std::optional<Plan> leanest_plan(const SearchContext& context, const DecisionTree& tree,
                                 bool walks);

// False: no plan of the tree fits, as not even what its layers cannot do without does. Where memory
// is not known by moments, nothing is said: true.
bool could_fit(const SearchContext& context, const DecisionTree& tree);

// A plan that fits, as a search of this cluster, batch and memory limit finds one; none: nothing
// fits.
using AnyPlan =
    std::function<std::optional<Plan>(const Cluster&, std::int64_t global_batch, Bytes limit)>;

// Where no plan of the tree fits. `complete` fills in what a plan carries beside its layers.
// Remedies are those that `any_plan` finds a plan for.
Infeasible explain_infeasible(const SearchContext& context, const DecisionTree& tree,
                              const SearchOptions& options, const AnyPlan& any_plan,
                              const std::function<void(Plan&)>& complete);

}  // namespace braid
