#pragma once
// The dumb twin of the exact search: every cut, every strategy of every layer. It shares nothing
// with the clever one but the values they work on, so that tests can hold one against the other.

#include <optional>

#include "planner/search/stage_search.h"

namespace braid {

// The fastest solution; none where nothing fits. Exponential in the layers.
std::optional<PipelineSolution> brute_force(const PipelineProblem& problem);

}  // namespace braid
