#include "planner/primepar/executable.h"

#include <algorithm>

namespace braid {

namespace {

// What an axis of the mesh does in one kind of operator.
enum class Place { inward, outward, attention, activation, residual };

Place place_of(std::size_t op, const Operator& o) {
  switch (o.kind) {
    case OperatorKind::linear:
      return op == 2 || op == 9 ? Place::inward : Place::outward;  // q, k, v and up
    case OperatorKind::scores:
    case OperatorKind::softmax:
    case OperatorKind::values:
      return Place::attention;
    case OperatorKind::activation:
      return Place::activation;
    case OperatorKind::add:
    case OperatorKind::norm:
      return Place::residual;
  }
  return Place::residual;
}

class Splitter {
 public:
  Splitter(const Strategy& strategy, MeshOrder order, Residual residual, std::int64_t micro_batch)
      : s_(strategy), order_(order), residual_(residual) {
    rows_ = rows_share_samples(s_, micro_batch) ? Dim::batch : Dim::rows;
  }

  Partition operator()(Place place) const {
    Partition p;
    if (order_ == MeshOrder::pp_tp_cp_dp) {
      add_tensor(p, place);
      add_cuts(p, s_.cp, Dim::rows);
      add_cuts(p, s_.dp, Dim::batch);
    } else {
      add_cuts(p, s_.dp, Dim::batch);
      add_cuts(p, s_.cp, Dim::rows);
      add_tensor(p, place);
    }
    return p;
  }

 private:
  static void add_cuts(Partition& p, int ways, Dim dim) {
    for (; ways > 1; ways /= 2) p.sequence.push_back({.dim = dim});
  }

  void add_tensor(Partition& p, Place place) const {
    add_cuts(p, s_.outer(), s_.tp_kind == TensorKind::ulysses ? ulysses(place) : megatron(place));
    if (s_.square > 1) add_square(p, place);
  }

  static Dim ulysses(Place place) { return place == Place::attention ? Dim::heads : Dim::rows; }

  Dim megatron(Place place) const {
    switch (place) {
      case Place::inward:
      case Place::activation:
        return Dim::columns;
      case Place::outward:
        return Dim::inner;
      case Place::attention:
        return Dim::heads;
      case Place::residual:
        return residual_ == Residual::cut ? Dim::rows : Dim::copies;
    }
    return Dim::rows;
  }

  void add_square(Partition& p, Place place) const {
    const auto straight = [&](Dim columns) {
      for (int side = s_.square; side > 1; side /= 2) {
        p.sequence.push_back({.dim = rows_});
        p.sequence.push_back({.dim = columns});
      }
    };
    switch (place) {
      case Place::inward:
        p.sequence.push_back({.dim = rows_, .q = s_.square, .rotation = Rotation::plus});
        return;
      case Place::outward:
      case Place::residual:
        p.sequence.push_back({.dim = rows_, .q = s_.square, .rotation = Rotation::minus});
        return;
      case Place::attention:
        return straight(Dim::heads);
      case Place::activation:
        return straight(Dim::columns);
    }
  }

  const Strategy& s_;
  MeshOrder order_;
  Residual residual_;
  Dim rows_;
};

std::vector<Strategy> strategies_over(int devices) {
  std::vector<Strategy> all;
  for (int tp = 1; tp <= devices; tp *= 2)
    for (int cp = 1; tp * cp <= devices; cp *= 2) {
      Strategy s{.tp = tp, .cp = cp, .dp = devices / tp / cp};
      all.push_back(s);
      if (tp == 1) continue;
      s.tp_kind = TensorKind::ulysses;
      all.push_back(s);
      s.tp_kind = TensorKind::spatial_temporal;
      for (const int side : {2, 4}) {
        if (tp % (side * side) != 0) continue;
        s.square = side;
        all.push_back(s);
      }
    }
  return all;
}

PrimeparPlan priced(std::vector<Partition> partitions, const LayerGraph& graph,
                    const PrimeparTask& task, const PrimeparMachine& machine) {
  PrimeparPlan plan;
  for (std::size_t op = 0; op < partitions.size(); ++op)
    plan.operators.push_back(operator_cost(graph.operators[op], partitions[op], task, machine));
  const auto element = static_cast<double>(bytes_of(task.precision));
  for (const GraphEdge& edge : graph.edges) {
    const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
    double seconds = 0;
    for (const Flow& flow : edge.flows)
      seconds +=
          flow.elements * element *
          seconds_a_byte(port_layouts(graph.operators[from], flow.from, partitions[from], task),
                         port_layouts(graph.operators[to], flow.to, partitions[to], task), machine);
    plan.redistributes.push_back(seconds);
  }
  plan.partitions = std::move(partitions);
  plan.totals = totals_of(plan.operators, plan.redistributes);
  return plan;
}

}  // namespace

std::vector<Partition> partitions_of(const Strategy& strategy, MeshOrder order, Residual residual,
                                     std::int64_t micro_batch) {
  const LayerGraph graph = layer_graph({});
  const Splitter split(strategy, order, residual, micro_batch);
  std::vector<Partition> partitions;
  partitions.reserve(graph.operators.size());
  for (std::size_t op = 0; op < graph.operators.size(); ++op)
    partitions.push_back(split(place_of(op, graph.operators[op])));
  return partitions;
}

std::vector<ExecutableLayer> executable_layers(const PrimeparTask& task,
                                               const PrimeparMachine& machine) {
  const LayerGraph graph = layer_graph(task);
  std::vector<MeshOrder> orders{MeshOrder::pp_dp_cp_tp};
  if (machine.node_width() < machine.devices()) orders.push_back(MeshOrder::pp_tp_cp_dp);
  std::vector<ExecutableLayer> layers;
  for (const MeshOrder order : orders)
    for (const Strategy& s : strategies_over(machine.devices())) {
      if (task.batch % s.dp != 0) continue;
      for (const Residual residual : {Residual::cut, Residual::copied}) {
        const bool copies = s.tp_kind != TensorKind::ulysses && s.outer() > 1;
        if (residual == Residual::copied && !copies) continue;
        std::vector<Partition> partitions = partitions_of(s, order, residual, task.batch);
        bool whole = true;
        for (std::size_t op = 0; op < partitions.size(); ++op)
          whole = whole && divides(partitions[op], graph.operators[op], task);
        if (whole)
          layers.push_back(
              {s, order, residual, priced(std::move(partitions), graph, task, machine)});
      }
    }
  return layers;
}

std::vector<ExecutableLayer> executable_front(std::vector<ExecutableLayer> layers) {
  std::ranges::stable_sort(layers, {}, [](const auto& l) { return l.plan.totals.time(); });
  std::vector<ExecutableLayer> front;
  for (ExecutableLayer& layer : layers)
    if (std::ranges::none_of(front, [&](const ExecutableLayer& other) {
          return no_worse(other.plan.totals, layer.plan.totals);
        }))
      front.push_back(std::move(layer));
  return front;
}

ExecutableIndex::ExecutableIndex(std::vector<ExecutableLayer> layers,
                                 const PrimeparMachine& machine)
    : layers_(std::move(layers)) {
  for (int bit = 0; bit < machine.bits(); ++bit) crosses_.push_back(machine.crosses(bit));
  for (std::size_t i = 0; i < layers_.size(); ++i)
    by_signature_.emplace(signature(layers_[i].plan.partitions), i);
}

ExecutableIndex::Signature ExecutableIndex::signature(std::span<const Partition> partitions) const {
  Signature bits(crosses_.size());
  for (std::size_t bit = 0; bit < bits.size(); ++bit) bits[bit].first = crosses_[bit];
  for (const Partition& partition : partitions) {
    std::size_t bit = 0;
    for (const Primitive& p : partition.sequence)
      for (int i = 0; i < p.bits(); ++i)
        bits[bit++].second.emplace_back(p.dim, p.q, p.rotation, p.is_square() && i % 2 == 1);
  }
  std::ranges::sort(bits);
  return bits;
}

const ExecutableLayer* ExecutableIndex::find(std::span<const Partition> partitions) const {
  const auto found = by_signature_.find(signature(partitions));
  return found == by_signature_.end() ? nullptr : &layers_[found->second];
}

}  // namespace braid
