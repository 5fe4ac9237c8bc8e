#pragma once
// All partitions of every operator of a layer on one machine, with what each costs.

#include <string>
#include <vector>

#include "planner/primepar/assignment.h"
#include "planner/primepar/redistribution.h"

namespace braid {

// Which squares may stand in a sequence.
enum class PrimeparVariant {
  paper,       // as published
  plus_minus,  // the mirrored pair with home copies
  spatial,     // none: ordinary cuts alone
};
std::string name_of(PrimeparVariant variant);

// A problem in ticks, with the tables that its edges point at.
struct PricedProblem {
  AssignmentProblem problem;
  std::vector<Table32> tables;
  double tick = 0;  // seconds
};

class PrimeparSpace {
 public:
  // Throws Error where an operator has no partition whose slices are whole.
  PrimeparSpace(const PrimeparTask& task, const PrimeparMachine& machine, PrimeparVariant variant);

  const PrimeparTask& task() const { return task_; }
  const LayerGraph& graph() const { return graph_; }
  const std::vector<Partition>& states(std::size_t op) const { return states_[op]; }
  const OperatorCost& cost(std::size_t op, std::size_t state) const { return costs_[op][state]; }
  // Seconds, forward and backward.
  double redistribute(std::size_t edge, std::size_t from_state, std::size_t to_state) const;

  // `alpha` is the price of memory: seconds a byte of states and stash.
  PricedProblem priced(double alpha) const;

 private:
  struct PricedFlow {
    const CostTable<float>* table = nullptr;
    std::vector<std::uint32_t> from, to;  // by state
    double bytes = 0;
  };
  Table32 edge_table(std::size_t edge, double tick) const;

  PrimeparTask task_;
  LayerGraph graph_;
  std::vector<std::vector<Partition>> states_;
  std::vector<std::vector<OperatorCost>> costs_;
  Redistribution redistribution_;
  std::vector<std::vector<PricedFlow>> flows_;  // by edge
};

}  // namespace braid
