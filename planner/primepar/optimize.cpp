#include "planner/primepar/optimize.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "planner/core/error.h"

namespace braid {

namespace {

PrimeparPlan plan_of(const PrimeparSpace& space, const Assignment& states) {
  PrimeparPlan plan;
  for (std::size_t op = 0; op < states.size(); ++op) {
    plan.partitions.push_back(space.states(op)[states[op]]);
    plan.operators.push_back(space.cost(op, states[op]));
  }
  const auto& edges = space.graph().edges;
  for (std::size_t e = 0; e < edges.size(); ++e)
    plan.redistributes.push_back(space.redistribute(e,
                                                    states[static_cast<std::size_t>(edges[e].from)],
                                                    states[static_cast<std::size_t>(edges[e].to)]));
  plan.totals = totals_of(plan.operators, plan.redistributes);
  return plan;
}

// Keeps what nothing before or after beats; of equals the first.
void drop_beaten(std::vector<ParetoPoint>& points) {
  std::ranges::stable_sort(points, {}, [](const ParetoPoint& p) { return p.plan.totals.time(); });
  std::vector<ParetoPoint> kept;
  for (ParetoPoint& point : points) {
    const bool beaten = std::ranges::any_of(kept, [&](const ParetoPoint& other) {
      return no_worse(other.plan.totals, point.plan.totals);
    });
    if (!beaten) kept.push_back(std::move(point));
  }
  points = std::move(kept);
}

Table64 widened(const Table32& table) {
  Table64 wide(table.rows(), table.columns());
  for (std::size_t i = 0; i < table.rows(); ++i)
    std::copy(table.row(i), table.row(i) + table.columns(), wide.row(i));
  return wide;
}

}  // namespace

LayerTotals totals_of(std::span<const OperatorCost> operators,
                      std::span<const double> redistributes) {
  LayerTotals totals;
  for (const OperatorCost& cost : operators.subspan(1)) {
    totals.compute += cost.compute;
    totals.ring_hidden += cost.ring_hidden;
    totals.ring_exposed += cost.ring_exposed;
    totals.all_reduce += cost.all_reduce;
    totals.gradient_reduce += cost.gradient_reduce;
    totals.states += cost.states;
    totals.stash += cost.stash;
    totals.workspace = std::max(totals.workspace, cost.workspace);
  }
  for (const double seconds : redistributes) totals.redistribute += seconds;
  return totals;
}

bool no_worse(const LayerTotals& a, const LayerTotals& b) {
  return a.time() <= b.time() && a.states <= b.states && a.stash <= b.stash &&
         a.workspace <= b.workspace;
}

PrimeparResult optimize(const PrimeparSpace& space, double alpha) {
  const PricedProblem priced = space.priced(alpha);
  const SolvedAssignment solved(priced.problem);
  const Table32& link = solved.link();
  internal_check(link.rows() == link.columns(), "a layer's ends have the same states");

  PrimeparResult result;
  std::size_t best = 0;
  for (std::size_t s = 1; s < link.rows(); ++s)
    if (link(s, s) < link(best, best)) best = s;
  result.plan = plan_of(space, solved.between(best, best));
  result.objective = link(best, best) * priced.tick;

  const Table64 stack = min_plus_power(widened(link), space.task().layers);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < stack.rows(); ++i)
    least = std::min(least, *std::min_element(stack.row(i), stack.row(i) + stack.columns()));
  result.stack = static_cast<double>(least) * priced.tick;
  return result;
}

std::vector<double> alpha_sweep(const LayerTotals& fastest, int count) {
  internal_check(count >= 2, "a sweep has two prices at least");
  // From where memory hardly counts to where it is all that counts.
  constexpr double kLow = 1e-3, kHigh = 1e2;
  const double scale = fastest.time() / (fastest.states + fastest.stash);
  std::vector<double> alphas{0};
  for (int i = 0; i + 1 < count; ++i)
    alphas.push_back(scale * kLow * std::pow(kHigh / kLow, i / std::max(1.0, count - 2.0)));
  return alphas;
}

std::vector<ParetoPoint> primepar_pareto(const PrimeparSpace& space,
                                         std::span<const double> alphas) {
  const std::size_t boundaries = space.states(0).size();
  std::vector<std::vector<ParetoPoint>> points(boundaries);
  for (const double alpha : alphas) {
    const PricedProblem priced = space.priced(alpha);
    const SolvedAssignment solved(priced.problem);
    for (std::size_t b = 0; b < boundaries; ++b)
      points[b].push_back({alpha, plan_of(space, solved.between(b, b))});
  }
  std::vector<ParetoPoint> all;
  for (std::vector<ParetoPoint>& of_boundary : points) {
    drop_beaten(of_boundary);
    std::ranges::move(of_boundary, std::back_inserter(all));
  }
  return all;
}

std::vector<ParetoPoint> best_of_boundaries(std::vector<ParetoPoint> points) {
  drop_beaten(points);
  return points;
}

}  // namespace braid
