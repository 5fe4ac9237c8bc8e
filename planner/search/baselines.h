#pragma once
// What people run today: one strategy for every layer, even cuts.

#include "planner/search/exact_search.h"

namespace braid {

Exploration explore_baseline(const SearchContext& context, const DecisionTree& tree,
                             const SearchOptions& options);

// The part of a tree that the algorithm of `options` searches: all of it under exact.
DecisionTree offered_by(const SearchOptions& options, const Cluster& cluster, DecisionTree tree);

}  // namespace braid
