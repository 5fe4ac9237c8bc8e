#pragma once
// Collectives as messages on wires. Every function takes all groups of a stage, which communicate
// at the same time, and returns the seconds until the slowest group is done: the latency of its
// critical path and its busiest wire.

#include <vector>

#include "tests/referee/wires.h"

namespace braid::referee {

using Group = std::vector<int>;  // device ids, in the order of their coordinate
using Groups = std::vector<Group>;

class Collectives {
 public:
  explicit Collectives(const Wires& wires) : wires_(wires) {}

  // `bytes`: the gathered tensor. A reduce-scatter is the same messages backwards.
  //
  // As many rings as the node with the fewest members has members, each with an equal stripe of the
  // data. A ring passes all members; each ring enters and leaves a node at members of its own.
  // Latency: a ring inside each node, a binomial tree over the nodes.
  double all_gather(const Groups& groups, double bytes) const;
  // Reduce-scatter, then all-gather.
  double all_reduce(const Groups& groups, double bytes) const {
    return 2 * all_gather(groups, bytes);
  }
  // `bytes`: what one member holds; it sends an equal part to each member, itself included.
  // Latency: log2 of the members hops, over the network where the group crosses nodes.
  double all_to_all(const Groups& groups, double bytes) const;
  // Every member sends `bytes` to the next, the last to the first.
  double ring_shift(const Groups& groups, double bytes) const;
  // The k-th device of one stage sends `bytes` to the k-th of another.
  double transfer(const Group& from, const Group& to, double bytes) const;

 private:
  double latency_of_rings(const Group& group) const;
  double independent(const Messages& messages) const;

  const Wires& wires_;
};

}  // namespace braid::referee
