#pragma once
// Branch and bound over configurations: each is bounded, the promising ones are solved exactly, and
// what they find bounds the rest.

#include "planner/search/finalists.h"
#include "planner/search/search.h"

namespace braid {

struct Exploration {
  std::vector<Finalist> ranked;  // fastest first
  double lower_bound = 0;        // over the whole space
  SearchStatistics statistics;
  std::vector<Configuration> open;  // that may hold a faster plan than the best
};

// `known` plans are in the race from the start.
Exploration explore_exactly(const SearchContext& context, const DecisionTree& tree,
                            const SearchOptions& options, std::vector<Finalist> known = {});

// Strategies that embedding and head may share, where the cost model couples them.
std::vector<Strategy> shared_outside_strategies(const SearchContext& context,
                                                const TreeBranch& branch,
                                                const Configuration& configuration);

}  // namespace braid
