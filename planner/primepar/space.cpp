#include "planner/primepar/space.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "planner/core/error.h"

namespace braid {

namespace {

std::vector<Rotation> rotations_of(PrimeparVariant variant) {
  switch (variant) {
    case PrimeparVariant::paper:
      return {Rotation::paper};
    case PrimeparVariant::plus_minus:
      return {Rotation::plus, Rotation::minus};
    case PrimeparVariant::spatial:
      return {};
  }
  return {};
}

// Under the mirrored pair the residual stream may stay skewed between operators, and may be copied
// as Megatron copies it; the paper has neither.
std::vector<Partition> elementwise_partitions(int bits, PrimeparVariant variant) {
  if (variant != PrimeparVariant::plus_minus) return partitions(bits, kElementwiseDims, {});
  constexpr Rotation kSkew[] = {Rotation::minus};
  std::vector<Partition> all = partitions(bits, kElementwiseDims, kSkew);
  std::ranges::move(copied_partitions(bits), std::back_inserter(all));
  return all;
}

std::vector<Partition> all_partitions(const Operator& op, int bits, PrimeparVariant variant) {
  switch (op.kind) {
    case OperatorKind::linear:
      return partitions(bits, kLinearDims, rotations_of(variant));
    case OperatorKind::add:
    case OperatorKind::norm:
    case OperatorKind::activation:
      return elementwise_partitions(bits, variant);
    case OperatorKind::scores:
    case OperatorKind::values:
      return partitions(bits, kAttentionDims, {});
    case OperatorKind::softmax:  // a row of scores stays whole
      return partitions(bits, kSoftmaxDims, {});
  }
  return {};
}

}  // namespace

std::string name_of(PrimeparVariant variant) {
  switch (variant) {
    case PrimeparVariant::paper:
      return "paper";
    case PrimeparVariant::plus_minus:
      return "plus_minus";
    case PrimeparVariant::spatial:
      return "spatial";
  }
  return {};
}

PrimeparSpace::PrimeparSpace(const PrimeparTask& task, const PrimeparMachine& machine,
                             PrimeparVariant variant)
    : task_(task), graph_(layer_graph(task)), redistribution_(machine) {
  for (const Operator& op : graph_.operators) {
    std::vector<Partition> states = all_partitions(op, machine.bits(), variant);
    // Samples as rows keep attention local; tokens of a sample are cut where samples do not
    // suffice.
    if (variant == PrimeparVariant::plus_minus)
      for (Partition& p : states)
        if (Partition other = with_sample_rows(p); divides(other, op, task_)) p = std::move(other);
    std::ranges::sort(states);
    const auto repeated = std::ranges::unique(states);
    states.erase(repeated.begin(), repeated.end());
    std::erase_if(states, [&](const Partition& p) { return !divides(p, op, task_); });
    if (states.empty())
      throw Error(
          {.what = fmt::format("no partition of '{}' over {} devices has whole slices", op.name,
                               machine.devices()),
           .where = fmt::format("{} samples of {} tokens", task.batch, task.block.tokens),
           .fix = "use fewer devices, or a batch and a sequence that powers of two divide"});
    std::vector<OperatorCost> costs;
    costs.reserve(states.size());
    for (const Partition& p : states) costs.push_back(operator_cost(op, p, task_, machine));
    states_.push_back(std::move(states));
    costs_.push_back(std::move(costs));
  }
  const auto element = static_cast<double>(bytes_of(task.precision));
  for (const GraphEdge& edge : graph_.edges) {
    const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
    std::vector<PricedFlow> flows;
    for (const Flow& flow : edge.flows) {
      PortStates out =
          redistribution_.states_of(graph_.operators[from], flow.from, states_[from], task_);
      PortStates in = redistribution_.states_of(graph_.operators[to], flow.to, states_[to], task_);
      const CostTable<float>& table = redistribution_.table(out, in);
      flows.push_back(
          {&table, std::move(out.of_state), std::move(in.of_state), flow.elements * element});
    }
    flows_.push_back(std::move(flows));
  }
}

double PrimeparSpace::redistribute(std::size_t edge, std::size_t from_state,
                                   std::size_t to_state) const {
  double total = 0;
  for (const PricedFlow& flow : flows_[edge])
    total += flow.bytes * (*flow.table)(flow.from[from_state], flow.to[to_state]);
  return total;
}

Table32 PrimeparSpace::edge_table(std::size_t edge, double tick) const {
  const GraphEdge& ends = graph_.edges[edge];
  Table32 table(states_[static_cast<std::size_t>(ends.from)].size(),
                states_[static_cast<std::size_t>(ends.to)].size());
  std::vector<float> sums(table.columns());
  for (std::size_t i = 0; i < table.rows(); ++i) {
    std::ranges::fill(sums, 0.0F);
    for (const PricedFlow& flow : flows_[edge]) {
      const float* costs = flow.table->row(flow.from[i]);
      const auto scale = static_cast<float>(flow.bytes / tick);
      for (std::size_t j = 0; j < table.columns(); ++j) sums[j] += scale * costs[flow.to[j]];
    }
    Ticks* row = table.row(i);
    for (std::size_t j = 0; j < table.columns(); ++j) row[j] = static_cast<Ticks>(sums[j]);
  }
  return table;
}

PricedProblem PrimeparSpace::priced(double alpha) const {
  std::vector<std::vector<double>> nodes;
  double bound = 0;  // of any assignment, in seconds
  for (const auto& costs : costs_) {
    std::vector<double> seconds;
    seconds.reserve(costs.size());
    for (const OperatorCost& cost : costs)
      seconds.push_back(cost.time() + alpha * (cost.states + cost.stash));
    bound += *std::ranges::max_element(seconds);
    nodes.push_back(std::move(seconds));
  }
  for (const auto& flows : flows_)
    for (const PricedFlow& flow : flows) {
      float most = 0;
      for (std::size_t i = 0; i < flow.table->rows(); ++i)
        most = std::max(most, *std::max_element(flow.table->row(i),
                                                flow.table->row(i) + flow.table->columns()));
      bound += flow.bytes * most;
    }
  constexpr double kRange = 1 << 30;  // half of what a tick counts to: rounding stays inside
  PricedProblem priced;
  priced.tick = bound / kRange;
  for (const std::vector<double>& seconds : nodes) {
    std::vector<Ticks> ticks;
    ticks.reserve(seconds.size());
    for (const double s : seconds)
      ticks.push_back(static_cast<Ticks>(std::lround(s / priced.tick)));
    priced.problem.nodes.push_back(std::move(ticks));
  }
  priced.tables.reserve(graph_.edges.size());
  for (std::size_t e = 0; e < graph_.edges.size(); ++e) {
    priced.tables.push_back(edge_table(e, priced.tick));
    priced.problem.edges.push_back(
        {graph_.edges[e].from, graph_.edges[e].to, &priced.tables.back()});
  }
  return priced;
}

}  // namespace braid
