#pragma once
// Galvatron-BMW's walk over partitions, from the one that balances memory towards the one that
// balances time.

#include <vector>

#include "planner/search/stage_search.h"

namespace braid {

// The best plan of the walk, and the one with even cuts where that is another: which
// of the two is faster, the simulator decides. Empty where nothing fits.
std::vector<PipelineSolution> balanced_solutions(const PipelineProblem& problem);

}  // namespace braid
