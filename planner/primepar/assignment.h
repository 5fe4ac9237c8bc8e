#pragma once
// The best state for every operator of a graph, exactly: chains are contracted by (min,+) products
// in the cheapest order, and an edge that skips ahead is added as soon as the span between its ends
// is one table.

#include <memory>
#include <optional>
#include <vector>

#include "planner/primepar/min_plus.h"

namespace braid {

struct AssignmentEdge {
  int from = 0, to = 0;
  const Table32* cost = nullptr;  // states of `from` × states of `to`
};

// A chain 0 → 1 → … with more edges that skip ahead. Two of those may nest or follow one another,
// but not cross.
struct AssignmentProblem {
  std::vector<std::vector<Ticks>> nodes;  // cost of every state
  std::vector<AssignmentEdge> edges;
};

// A state's index for each operator.
using Assignment = std::vector<std::size_t>;
std::int64_t cost_of(const AssignmentProblem& problem, const Assignment& assignment);

// A solved problem: the best cost between any two states of its ends, and how it is reached.
class SolvedAssignment {
 public:
  explicit SolvedAssignment(const AssignmentProblem& problem);
  ~SolvedAssignment();
  SolvedAssignment(SolvedAssignment&&) noexcept;
  SolvedAssignment& operator=(SolvedAssignment&&) noexcept;

  // Everything but the first operator, whose cost the operators before it have paid.
  const Table32& link() const;
  Assignment between(std::size_t first, std::size_t last) const;

 private:
  struct Span;
  class Builder;
  std::unique_ptr<Span> whole_;
};

// The dumb twin: tries every assignment. `first` and `last` fix the ends.
Assignment brute_force(const AssignmentProblem& problem, std::optional<std::size_t> first = {},
                       std::optional<std::size_t> last = {});

}  // namespace braid
