#pragma once
// Hill climbing from a plan that was found: what the search's bounds do not see exactly (transfers
// that depend on the cut, reductions of later stages, the moments of memory) the simulator's price
// does.

#include "planner/search/build_problem.h"
#include "planner/search/finalists.h"

namespace braid {

// The fastest plan that a walk of single changes finds: a block moved to the next stage, another
// strategy for a run of equal layers, another schedule, mesh order or number of micro-batches.
// Every step is a plan of the tree; where the start does not fit, one that exceeds its memory less,
// and from there on one that fits and is faster. At most `most_layers` layers are priced; a stop of
// the search ends the walk where it is.
Finalist improve(const SearchContext& context, const DecisionTree& tree, Finalist start,
                 std::int64_t most_layers);

}  // namespace braid
