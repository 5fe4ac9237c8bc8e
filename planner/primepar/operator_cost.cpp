#include "planner/primepar/operator_cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "planner/core/error.h"
#include "planner/core/text.h"

namespace braid {

namespace {

constexpr int kMaxDevices = 64;

Cluster checked(const Cluster& cluster) {
  if (const auto fault = PrimeparMachine::fault(cluster, cluster.num_devices()))
    throw Error(*fault);
  return cluster;
}

int log2_of(int n) { return std::countr_zero(static_cast<unsigned>(n)); }

double sliced(std::int64_t whole, const Partition& p, Dim dim) {
  return std::ldexp(static_cast<double>(whole), -p.levels(dim));
}

std::vector<int> joined(std::vector<int> bits, const std::vector<int>& more) {
  bits.insert(bits.end(), more.begin(), more.end());
  return bits;
}

// A linear operator's blocks on one device, in bytes.
struct Blocks {
  double input, weight, output;

  double of(Operand operand) const {
    switch (operand) {
      case Operand::input:
        return input;
      case Operand::weight:
      case Operand::weight_gradient:
        return weight;
      case Operand::output_gradient:
        return output;
    }
    return 0;
  }
};

// Steps of a square: products beside transfers, which share a device's port inside the node and its
// port to the network.
void add_rings(OperatorCost& cost, const Partition& p, const Blocks& blocks, double step_compute,
               const PrimeparMachine& machine) {
  const Primitive& square = *p.square();
  const auto crosses = [&](int bit) { return machine.crosses(bit); };
  const bool rows_cross = std::ranges::any_of(p.square_rows(), crosses);
  const bool columns_cross = std::ranges::any_of(p.square_columns(), crosses);
  for (const Phase phase : kPhases)
    for (int step = 0; step < square.q; ++step) {
      double near = 0, far = 0;
      for (const Transfer& t : transfers(square.rotation, phase, square.q, step)) {
        const bool across = (t.dr != 0 && rows_cross) || (t.dc != 0 && columns_cross);
        (across ? far : near) += blocks.of(t.operand);
      }
      const double ring = std::max(machine.transfer(near, false), machine.transfer(far, true));
      cost.ring_hidden += std::min(ring, step_compute);
      cost.ring_exposed += std::max(0.0, ring - step_compute);
    }
}

OperatorCost linear_cost(const Operator& op, const Partition& p, const PrimeparTask& task,
                         const PrimeparMachine& machine) {
  const auto element = static_cast<double>(bytes_of(task.precision));
  const double tokens = sliced(task.batch, p, Dim::batch) * sliced(task.block.tokens, p, Dim::rows);
  const double inner = sliced(op.inputs, p, Dim::inner);
  const double columns = sliced(op.outputs, p, Dim::columns);
  const Blocks blocks{tokens * inner * element, inner * columns * element,
                      tokens * columns * element};
  const Primitive* square = p.square();
  const int q = square == nullptr ? 1 : square->q;
  const double step_compute = 2 * tokens * inner * columns / machine.matmul_flops();

  OperatorCost cost;
  cost.compute = 3 * q * step_compute;
  if (square != nullptr) add_rings(cost, p, blocks, step_compute, machine);
  cost.all_reduce = machine.all_reduce(blocks.output, p.cuts(Dim::inner)) +
                    machine.all_reduce(blocks.input, p.cuts(Dim::columns));
  cost.gradient_reduce =
      machine.all_reduce(blocks.weight, joined(p.cuts(Dim::batch), p.cuts(Dim::rows))) /
      static_cast<double>(task.accumulate);
  cost.states = inner * columns * kStateBytes;
  cost.stash = blocks.input;
  if (square != nullptr) {
    // A second buffer for each block that moves; home copies need a third where a block is still
    // sent on while the next arrives.
    const double buffers = square->rotation != Rotation::paper && q > 2 ? 2 : 1;
    cost.workspace = buffers * (blocks.input + blocks.weight + blocks.output);
  } else {
    // The operand of an all-reduce lives beside its parts.
    if (!p.cuts(Dim::inner).empty()) cost.workspace = blocks.output;
    if (!p.cuts(Dim::columns).empty()) cost.workspace = std::max(cost.workspace, blocks.input);
  }
  return cost;
}

OperatorCost elementwise_cost(const Operator& op, const Partition& p, const PrimeparTask& task,
                              const PrimeparMachine& machine) {
  const auto element = static_cast<double>(bytes_of(task.precision));
  const double tokens = sliced(task.batch, p, Dim::batch) * sliced(task.block.tokens, p, Dim::rows);
  const double in = tokens * sliced(op.inputs, p, Dim::columns);
  const double out = tokens * sliced(op.outputs, p, Dim::columns);
  OperatorCost cost;
  if (op.kind == OperatorKind::add) {  // two reads and a write, forward and backward
    cost.compute = 6 * in * element / machine.memory_bandwidth();
    return cost;
  }
  // Forward reads the input and writes the output; backward reads both and writes a gradient.
  cost.compute = (3 * in + 2 * out) * element / machine.memory_bandwidth();
  cost.stash = in * element;
  if (op.kind != OperatorKind::norm) return cost;
  // In a skewed layout a token's columns lie along a row of the square, a column's tokens along a
  // diagonal: as many devices as a column of it.
  const std::vector<int> columns = joined(p.cuts(Dim::columns), p.square_columns());
  const std::vector<int> tokens_of =
      joined(joined(p.cuts(Dim::batch), p.cuts(Dim::rows)), p.square_rows());
  constexpr double kStatistics = 2 * 4;  // two fp32 numbers a token, each way
  cost.all_reduce = 2 * machine.all_reduce(tokens * kStatistics, columns);
  const double parameters =
      (task.block.norm == NormKind::rms_norm ? 1 : 2) * sliced(op.inputs, p, Dim::columns);
  cost.gradient_reduce =
      machine.all_reduce(parameters * element, tokens_of) / static_cast<double>(task.accumulate);
  cost.states = parameters * kStateBytes;
  return cost;
}

OperatorCost attention_cost(const Operator& op, const Partition& p, const PrimeparTask& task,
                            const PrimeparMachine& machine) {
  OperatorCost cost;
  if (op.kind == OperatorKind::softmax) return cost;  // fused: scores never reach memory
  const LayerShape& block = task.block;
  const auto element = static_cast<double>(bytes_of(task.precision));
  const double parts = std::ldexp(1.0, p.bits());
  const double flops = static_cast<double>(task.batch) * forward_flops(block).attention.value() / 2;
  cost.compute = 3 * flops / parts / machine.attention_flops();

  const double samples = sliced(task.batch, p, Dim::batch) * static_cast<double>(block.head_dim);
  const double query =
      samples * sliced(block.heads, p, Dim::heads) * sliced(block.tokens, p, Dim::rows) * element;
  // Key and value heads fewer than the cuts are held as copies.
  const int head_levels = p.levels(Dim::heads);
  const int kv_levels =
      std::min(head_levels, std::countr_zero(static_cast<std::uint64_t>(block.kv_heads)));
  const double key = samples * std::ldexp(static_cast<double>(block.kv_heads), -kv_levels) *
                     sliced(block.tokens, p, Dim::keys) * element;
  std::vector<int> copies = p.cuts(Dim::rows);
  const std::vector<int> heads = p.cuts(Dim::heads);
  copies.insert(copies.end(), heads.begin() + kv_levels, heads.end());
  // Cut keys leave partial sums of dQ (or of the output), copied keys partial sums of dK (or dV).
  cost.all_reduce = machine.all_reduce(query, p.cuts(Dim::keys)) + machine.all_reduce(key, copies);
  cost.stash = op.kind == OperatorKind::scores ? query + key : key;
  return cost;
}

}  // namespace

std::optional<Mistake> PrimeparMachine::fault(const Cluster& cluster, int devices) {
  const auto mistake = [&](std::string what, std::string fix) {
    return Mistake{.what = std::move(what), .where = cluster.name, .fix = std::move(fix)};
  };
  if (!is_power_of_two(devices) || devices > kMaxDevices)
    return mistake(
        fmt::format("PrimePar splits over the bits of a device id, and {} devices are no power of "
                    "two up to {}",
                    devices, kMaxDevices),
        "choose --devices from 2, 4, 8, 16, 32 and 64");
  if (!cluster.uniform())
    return mistake("the nodes differ", "use a cluster of equal nodes, or 'braid plan'");
  if (!is_power_of_two(cluster.node_width()))
    return mistake(
        fmt::format("a node has {} devices, which is no power of two", cluster.node_width()),
        "use nodes of 1, 2, 4 or 8 devices");
  return std::nullopt;
}

PrimeparMachine::PrimeparMachine(const Cluster& cluster, Precision precision,
                                 const Assumptions& assumptions, NetworkShare share,
                                 const Profile* profile)
    : cluster_(checked(cluster)),
      network_(cluster_, profile, assumptions.link_efficiency),
      share_(share) {
  bits_ = log2_of(cluster.num_devices());
  width_ = std::min(cluster.node_width(), cluster.num_devices());
  in_node_bits_ = log2_of(width_);
  const DeviceType& device =
      cluster.device_types[static_cast<std::size_t>(cluster.groups.front().device_type)];
  matmul_flops_ = device.peak(precision).value() * assumptions.matmul_efficiency;
  attention_flops_ = device.wide_peak(precision).value() * assumptions.attention_efficiency;
  memory_bandwidth_ = device.memory_bandwidth.value() * assumptions.memory_efficiency;
  near_byte_ = 1 / (cluster.groups.front().inside.bandwidth.value() * assumptions.link_efficiency);
  if (cluster.num_nodes() > 1)
    far_byte_ = 1 / (cluster.between.bandwidth.value() * assumptions.link_efficiency);
}

double PrimeparMachine::all_reduce(double bytes, const std::vector<int>& group_bits) const {
  if (group_bits.empty()) return 0;
  int inside = 0;
  for (const int bit : group_bits) inside += crosses(bit) ? 0 : 1;
  const int size = 1 << group_bits.size();
  // Groups are strided here, and only how many members share a node matters to a link.
  const bool across = inside < static_cast<int>(group_bits.size());
  const GroupShape shape{size, across ? width_ >> inside : 1};
  return all_reduce(bytes, shape);
}

GroupShape PrimeparMachine::shared(GroupShape group) const {
  const bool across = group.size * group.stride > width_;
  if (share_ == NetworkShare::of_one && across) group.stride = std::max(group.stride, width_);
  return group;
}

double PrimeparMachine::all_reduce(double bytes, GroupShape group) const {
  return network_.all_reduce(bytes, shared(group), span());
}

double PrimeparMachine::all_gather(double bytes, GroupShape group) const {
  return network_.all_gather(bytes, shared(group), span());
}

double PrimeparMachine::reduce_scatter(double bytes, GroupShape group) const {
  return network_.reduce_scatter(bytes, shared(group), span());
}

double PrimeparMachine::transfer(double bytes, bool across) const {
  return network_.point_to_point(bytes, 0, across ? width_ : 1);
}

OperatorCost operator_cost(const Operator& op, const Partition& partition, const PrimeparTask& task,
                           const PrimeparMachine& machine) {
  switch (letters_of(op.kind)) {
    case Letters::linear:
      return linear_cost(op, partition, task, machine);
    case Letters::elementwise:
      return elementwise_cost(op, partition, task, machine);
    case Letters::attention:
      return attention_cost(op, partition, task, machine);
  }
  return {};
}

}  // namespace braid
