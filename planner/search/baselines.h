#pragma once
// What people run today: one strategy for every layer, even cuts.

#include "planner/search/exact_search.h"

namespace braid {

Exploration explore_baseline(const SearchContext& context, const DecisionTree& tree,
                             const SearchOptions& options);

}  // namespace braid
