#pragma once
// PrimePar's optimiser: the partition of every operator of a layer, for one price of memory or for
// all worth having.

#include <span>
#include <vector>

#include "planner/primepar/space.h"

namespace braid {

// One layer's costs, without the first add: the layer before has paid for it.
struct LayerTotals {
  double compute = 0, ring_hidden = 0, ring_exposed = 0, all_reduce = 0;
  double gradient_reduce = 0;  // this micro-batch's share
  double redistribute = 0;
  double states = 0, stash = 0, workspace = 0;  // bytes

  double exposed() const { return ring_exposed + all_reduce + gradient_reduce + redistribute; }
  double time() const { return compute + exposed(); }
  double memory(int layers) const { return layers * (states + stash) + workspace; }
};
// Of all operators and edges.
LayerTotals totals_of(std::span<const OperatorCost> operators,
                      std::span<const double> redistributes);
// In time and every kind of memory.
bool no_worse(const LayerTotals& a, const LayerTotals& b);

struct PrimeparPlan {
  std::vector<Partition> partitions;    // by operator
  std::vector<OperatorCost> operators;  // the same
  std::vector<double> redistributes;    // seconds, by edge of the graph
  LayerTotals totals;

  // How the residual stream lies between two layers.
  const Partition& boundary() const { return partitions.front(); }
};

struct PrimeparResult {
  PrimeparPlan plan;     // the best that every layer of the stack can follow
  double objective = 0;  // seconds of one layer of it, with the price of memory
  double stack = 0;      // the same for the whole stack, where layers may differ
};
PrimeparResult optimize(const PrimeparSpace& space, double alpha);

// A plan with its ends in the same layout, so that it can follow itself.
struct ParetoPoint {
  double alpha = 0;
  PrimeparPlan plan;
};
// Prices of memory worth trying, from a first answer: none, and then geometric steps.
std::vector<double> alpha_sweep(const LayerTotals& fastest, int count = 16);
// For every boundary layout the plans that no other beats in time, states, stash and workspace at
// once; boundaries in the order of the space's states, the fastest first.
std::vector<ParetoPoint> primepar_pareto(const PrimeparSpace& space,
                                         std::span<const double> alphas);
// The fastest points over all boundaries: what is left when the boundary is free.
std::vector<ParetoPoint> best_of_boundaries(std::vector<ParetoPoint> points);

}  // namespace braid
