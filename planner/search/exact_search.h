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
  bool asked_others = false;        // ExactStart::others
};

// What an exact search begins with.
struct ExactStart {
  std::vector<Finalist> known;      // plans in the race from the start
  bool alternatives_known = false;  // they hold the alternatives: only what could win is solved
  bool whole_space = true;          // no wider tree is searched after this one
  // Plans of other algorithms in these configurations, faster than so many seconds. Asked where the
  // bounds leave much room, before the long part of the search; may be empty.
  std::function<std::vector<Finalist>(const std::vector<Configuration>& open, double than)> others;
};

Exploration explore_exactly(const SearchContext& context, const DecisionTree& tree,
                            const SearchOptions& options, ExactStart start = {});

// Strategies that embedding and head may share, where the cost model couples them.
std::vector<Strategy> shared_outside_strategies(const SearchContext& context,
                                                const TreeBranch& branch,
                                                const Configuration& configuration);

}  // namespace braid
