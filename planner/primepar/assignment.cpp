#include "planner/primepar/assignment.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "planner/core/error.h"

namespace braid {

// Operators `from` to `to`, the costs of all but the first.
struct SolvedAssignment::Span {
  int from = 0, to = 0;
  Table32 cost;
  // How it was made: joined at left->to, and then what an edge across it added.
  std::unique_ptr<Span> left, right;

  // Chooses the states between two that are chosen.
  void trace(Assignment& chosen) const {
    if (!left) return;
    const std::size_t first = chosen[static_cast<std::size_t>(from)];
    const std::size_t last = chosen[static_cast<std::size_t>(to)];
    std::size_t best = 0;
    Ticks least = std::numeric_limits<Ticks>::max();
    for (std::size_t k = 0; k < right->cost.rows(); ++k) {
      const Ticks sum = left->cost(first, k) + right->cost(k, last);
      if (sum >= least) continue;
      least = sum;
      best = k;
    }
    chosen[static_cast<std::size_t>(left->to)] = best;
    left->trace(chosen);
    right->trace(chosen);
  }
};

class SolvedAssignment::Builder {
 public:
  explicit Builder(const AssignmentProblem& problem) : problem_(problem) {
    for (const AssignmentEdge& edge : problem.edges) {
      internal_check(edge.from < edge.to, "edges point forward");
      edges_[{edge.from, edge.to}].push_back(edge.cost);
    }
    for (const auto& [outer, outer_tables] : edges_)
      for (const auto& [inner, inner_tables] : edges_)
        internal_check(!(outer.first < inner.first && inner.first < outer.second &&
                         outer.second < inner.second),
                       "edges that skip ahead do not cross");
  }

  std::unique_ptr<Span> build(int from, int to) {
    std::vector<std::unique_ptr<Span>> parts;
    if (to == from + 1) {
      parts.push_back(link(from));
    } else {
      for (int at = from; at < to;) {
        const int next = longest_inside(at, from, to);
        parts.push_back(next == at + 1 ? link(at) : build(at, next));
        at = next;
      }
      parts = contracted(std::move(parts));
      add_edges(*parts.front());
    }
    return std::move(parts.front());
  }

 private:
  std::size_t states(int node) const {
    return problem_.nodes[static_cast<std::size_t>(node)].size();
  }

  // Where the widest edge from `at` ends that lies inside (from, to) and is not all of it.
  int longest_inside(int at, int from, int to) const {
    int end = at + 1;
    for (const auto& [ends, tables] : edges_)
      if (ends.first == at && ends.second <= to && !(at == from && ends.second == to))
        end = std::max(end, ends.second);
    return end;
  }

  // Two neighbours: the costs of the second, and of the edges between them.
  std::unique_ptr<Span> link(int from) const {
    auto span = std::make_unique<Span>();
    span->from = from;
    span->to = from + 1;
    const std::vector<Ticks>& second = problem_.nodes[static_cast<std::size_t>(from) + 1];
    span->cost = Table32(states(from), second.size());
    for (std::size_t i = 0; i < span->cost.rows(); ++i)
      std::ranges::copy(second, span->cost.row(i));
    add_edges(*span);
    return span;
  }

  void add_edges(Span& span) const {
    const auto found = edges_.find({span.from, span.to});
    if (found == edges_.end()) return;
    for (const Table32* table : found->second) {
      internal_check(table->rows() == span.cost.rows() && table->columns() == span.cost.columns(),
                     "an edge's table has the states of its ends");
      for (std::size_t i = 0; i < table->rows(); ++i)
        for (std::size_t j = 0; j < table->columns(); ++j) span.cost(i, j) += (*table)(i, j);
    }
  }

  // The parts as one, multiplied in the order with the fewest operations (the matrix-chain order).
  std::vector<std::unique_ptr<Span>> contracted(std::vector<std::unique_ptr<Span>> parts) const {
    const std::size_t n = parts.size();
    std::vector<double> sizes{static_cast<double>(states(parts.front()->from))};
    for (const auto& part : parts) sizes.push_back(static_cast<double>(states(part->to)));
    CostTable<double> work(n, n);
    CostTable<std::size_t> split(n, n);
    for (std::size_t length = 2; length <= n; ++length)
      for (std::size_t i = 0; i + length <= n; ++i) {
        const std::size_t j = i + length - 1;
        work(i, j) = std::numeric_limits<double>::infinity();
        for (std::size_t k = i; k < j; ++k) {
          const double total = work(i, k) + work(k + 1, j) + sizes[i] * sizes[k + 1] * sizes[j + 1];
          if (total >= work(i, j)) continue;
          work(i, j) = total;
          split(i, j) = k;
        }
      }
    std::vector<std::unique_ptr<Span>> whole;
    whole.push_back(joined(parts, split, 0, n - 1));
    return whole;
  }

  std::unique_ptr<Span> joined(std::vector<std::unique_ptr<Span>>& parts,
                               const CostTable<std::size_t>& split, std::size_t i,
                               std::size_t j) const {
    if (i == j) return std::move(parts[i]);
    auto span = std::make_unique<Span>();
    span->left = joined(parts, split, i, split(i, j));
    span->right = joined(parts, split, split(i, j) + 1, j);
    span->from = span->left->from;
    span->to = span->right->to;
    span->cost = min_plus(span->left->cost, span->right->cost);
    return span;
  }

  const AssignmentProblem& problem_;
  std::map<std::pair<int, int>, std::vector<const Table32*>> edges_;
};

SolvedAssignment::SolvedAssignment(const AssignmentProblem& problem) {
  internal_check(problem.nodes.size() >= 2, "a chain has two operators at least");
  whole_ = Builder(problem).build(0, static_cast<int>(problem.nodes.size()) - 1);
}
SolvedAssignment::~SolvedAssignment() = default;
SolvedAssignment::SolvedAssignment(SolvedAssignment&&) noexcept = default;
SolvedAssignment& SolvedAssignment::operator=(SolvedAssignment&&) noexcept = default;

const Table32& SolvedAssignment::link() const { return whole_->cost; }

Assignment SolvedAssignment::between(std::size_t first, std::size_t last) const {
  Assignment chosen(static_cast<std::size_t>(whole_->to) + 1);
  chosen.front() = first;
  chosen.back() = last;
  whole_->trace(chosen);
  return chosen;
}

std::int64_t cost_of(const AssignmentProblem& problem, const Assignment& assignment) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < assignment.size(); ++i) total += problem.nodes[i][assignment[i]];
  for (const AssignmentEdge& edge : problem.edges)
    total += (*edge.cost)(assignment[static_cast<std::size_t>(edge.from)],
                          assignment[static_cast<std::size_t>(edge.to)]);
  return total;
}

Assignment brute_force(const AssignmentProblem& problem, std::optional<std::size_t> first,
                       std::optional<std::size_t> last) {
  Assignment current(problem.nodes.size(), 0);
  if (first) current.front() = *first;
  if (last) current.back() = *last;
  Assignment best = current;
  std::int64_t least = cost_of(problem, current);
  for (;;) {
    std::size_t node = 0;
    for (; node < current.size(); ++node) {
      const bool fixed = (node == 0 && first) || (node + 1 == current.size() && last);
      if (fixed) continue;
      if (++current[node] < problem.nodes[node].size()) break;
      current[node] = 0;
    }
    if (node == current.size()) return best;
    const std::int64_t cost = cost_of(problem, current);
    if (cost >= least) continue;
    least = cost;
    best = current;
  }
}

}  // namespace braid
