#pragma once
// What people run today: one strategy for every layer, even cuts.

#include "planner/search/exact_search.h"

namespace braid {

Exploration explore_baseline(const SearchContext& context, const DecisionTree& tree,
                             const SearchOptions& options);

// What of a tree an algorithm looks at: a baseline at little of it, the others at all.
DecisionTree offered_by(Algorithm algorithm, const SearchContext& context, DecisionTree tree);

}  // namespace braid
