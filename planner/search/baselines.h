#pragma once
// What people run today: one strategy for every layer, even cuts.

#include "planner/search/exact_search.h"

namespace braid {

Exploration explore_baseline(const SearchContext& context, const DecisionTree& tree,
                             const SearchOptions& options);

// What of a tree the algorithm of `options` looks at: exact at all of it, the others at less.
DecisionTree offered_by(const SearchOptions& options, const Cluster& cluster, DecisionTree tree);

}  // namespace braid
