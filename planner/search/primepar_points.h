#pragma once
// What PrimePar's operators say about strategies: those that no other beats in time and memory,
// operator by operator, are tried even where a rule would prune them.

#include "planner/primepar/executable.h"
#include "planner/profile/profile.h"
#include "planner/search/decision_tree.h"
#include "planner/search/watch.h"

namespace braid {

struct PointsOptions {
  Precision precision = Precision::bf16;
  const Profile* profile = nullptr;  // where prices come from one
  Watch* watch = nullptr;            // asked on the way; may be null
};

// Those of executable_layers that a plan may hold: operators may cut what a layer's strategy may
// not, such as 197 tokens that are copied between tensor-parallel ranks.
std::vector<ExecutableLayer> legal_layers(const PrimeparTask& task, const PrimeparMachine& machine);

// For every branch the front of each type of block and each micro-batch (executable_front) marks
// its leaves, with all levels of ZeRO and recomputation, and spares them from the rules, except for
// splits that a profile has not timed. Where nothing was marked, or something not spared,
// `tree.without_points` says why.
void add_primepar_points(DecisionTree& tree, const Model& model, const Cluster& cluster,
                         const PointsOptions& options);

// The tree as it is without them, and without squares that were asked for.
DecisionTree without_points(DecisionTree tree);

}  // namespace braid
