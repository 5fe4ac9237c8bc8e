#pragma once
// Galvatron-BMW: stages balanced in memory and in time at once, by walking from the partition that
// balances memory towards the one that balances time.

#include "planner/search/exact_search.h"

namespace braid {

Exploration explore_as_bmw(const SearchContext& context, const DecisionTree& tree,
                           const SearchOptions& options);

}  // namespace braid
