#pragma once
// What edges cost: tables of seconds a byte between the layouts that two operators ask for, one for
// each pair of layout sets, however many edges and partitions share them.

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "planner/primepar/layer_graph.h"
#include "planner/primepar/layout.h"
#include "planner/primepar/min_plus.h"
#include "planner/primepar/operator_cost.h"

namespace braid {

// A tensor on its way forward and its gradient on its way back may lie differently at one operator.
struct PortLayouts {
  Layout forward, backward;
};
PortLayouts port_layouts(const Operator& op, Port port, const Partition& partition,
                         const PrimeparTask& task);

// Seconds that the redistribution of a tensor of one byte takes, forward and backward.
double seconds_a_byte(const PortLayouts& from, const PortLayouts& to,
                      const PrimeparMachine& machine);

// All states of one operator's port, with equal layouts listed once.
struct PortStates {
  std::vector<int> kinds;               // distinct layout pairs, ascending ids of the pool
  std::vector<std::uint32_t> of_state;  // index into `kinds`
};

class Redistribution {
 public:
  explicit Redistribution(const PrimeparMachine& machine) : machine_(machine) {}

  PortStates states_of(const Operator& op, Port port, std::span<const Partition> states,
                       const PrimeparTask& task);
  // Producer's kinds × consumer's kinds.
  const CostTable<float>& table(const PortStates& from, const PortStates& to);

 private:
  int layout_id(Layout layout);
  double one_way(int from, int to) const;
  // To the other layout and back: what most tables are made of, each pair in several of them.
  float there_and_back(int a, int b);

  const PrimeparMachine& machine_;
  std::map<Layout, int> ids_;
  std::vector<Layout> layouts_;
  std::vector<MovementSource> sources_;
  std::map<std::pair<int, int>, int> kind_ids_;
  std::vector<std::pair<int, int>> kinds_;       // forward and backward layout
  std::vector<std::vector<float>> round_trips_;  // [larger id][smaller id], NaN where not asked yet
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::unique_ptr<CostTable<float>>>
      tables_;
};

}  // namespace braid
