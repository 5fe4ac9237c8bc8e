#pragma once
// Galvatron's search as its engine does it: even cuts, one strategy for embedding and head, and for
// each stage the strategies whose summed time of one micro-batch is least within the memory. Its
// table over megabytes stores a step function of memory; a frontier keeps the steps alone and finds
// the same.

#include "planner/search/exact_search.h"

namespace braid {

Exploration explore_as_galvatron(const SearchContext& context, const DecisionTree& tree,
                                 const SearchOptions& options);

// Whether any task of its outer loop has this strategy among its candidates.
bool offered_by_galvatron(const Strategy& strategy, CostKind cost);

}  // namespace braid
