#pragma once
// The plan that a system without per-layer choices can run.

#include <optional>

#include "planner/search/finalists.h"

namespace braid {

// The fastest plan of the tree that Megatron-LM could run: one strategy for all blocks (megatron
// tensor parallelism, ZeRO 0 or 1), stages of equal size, schedule 1f1b or interleaved, ranks in
// order pp_dp_cp_tp.
struct BestUniform {
  std::optional<Finalist> plan;  // none: nothing of this kind fits
  bool complete = true;          // false: the search was stopped, and this is the best so far
};
BestUniform best_uniform(const SearchContext& context, const DecisionTree& tree);

}  // namespace braid
