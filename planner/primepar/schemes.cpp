#include "planner/primepar/schemes.h"

#include <algorithm>
#include <cmath>

namespace braid {

namespace {

// A layer's sizes as real numbers: elements of the micro-batch's activations and of the weights.
struct Sizes {
  double element;      // bytes
  double samples;      // of the micro-batch
  double tokens;       // of the micro-batch
  double hidden;       // width of the residual stream
  double inner_width;  // what stays cut inside attention and feed-forward, and is kept
  double weights;      // of the four matrices
  double norms;        // parameters of the two norms
  std::vector<double> matrices, scales;  // the same one by one: each is reduced by itself
  double inputs;                         // sum of the matrices' input widths
  double widest;  // largest of input, output and matrix, in elements, for one token batch
  double linear_flops, attention_flops;    // forward
  double residual_traffic, inner_traffic;  // elements that norms and adds, and the activation move
};

Sizes sizes_of(const PrimeparTask& task) {
  const LayerGraph graph = layer_graph(task);
  Sizes s{};
  s.element = static_cast<double>(bytes_of(task.precision));
  s.samples = static_cast<double>(task.batch);
  s.tokens = s.samples * static_cast<double>(task.block.tokens);
  s.hidden = static_cast<double>(task.block.hidden);
  for (const Operator& op : graph.operators) {
    const auto in = static_cast<double>(op.inputs), out = static_cast<double>(op.outputs);
    switch (op.kind) {
      case OperatorKind::linear:
        s.weights += in * out;
        s.matrices.push_back(in * out);
        s.inputs += in;
        s.widest = std::max(s.widest, s.tokens * (in + out) + in * out);
        break;
      case OperatorKind::norm:
        s.scales.push_back((task.block.norm == NormKind::rms_norm ? 1 : 2) * in);
        s.norms += s.scales.back();
        s.residual_traffic += 5 * s.tokens * in;
        break;
      case OperatorKind::add:
        s.residual_traffic += 6 * s.tokens * in;
        break;
      case OperatorKind::activation:
        s.inner_traffic += s.tokens * (3 * in + 2 * out);
        s.inner_width += in + out;
        break;
      case OperatorKind::scores:
      case OperatorKind::softmax:
      case OperatorKind::values:
        break;
    }
  }
  s.residual_traffic -= 6 * s.tokens * s.hidden;  // the first add is the layer before's
  const Operator& qkv = graph.operators[2];
  const Operator& projection = graph.operators[6];
  s.inner_width += static_cast<double>(qkv.outputs + projection.inputs);
  s.linear_flops = 2 * s.tokens * s.weights;
  s.attention_flops = s.samples * forward_flops(task.block).attention.value();
  return s;
}

double compute(const Sizes& s, const PrimeparMachine& machine, double residual_share) {
  const double n = machine.devices();
  return 3 * s.linear_flops / n / machine.matmul_flops() +
         3 * s.attention_flops / n / machine.attention_flops() +
         (s.residual_traffic * residual_share + s.inner_traffic / n) * s.element /
             machine.memory_bandwidth();
}

// This micro-batch's share; a matrix is cut over `parts` devices, a norm is whole on each.
double gradient_reduce(const Sizes& s, double parts, GroupShape replicas, const PrimeparTask& task,
                       const PrimeparMachine& machine) {
  const auto reduced = [&](double parameters) {
    return machine.all_reduce(parameters * s.element, replicas);
  };
  double total = 0;
  for (const double matrix : s.matrices) total += reduced(matrix / parts);
  for (const double scale : s.scales) total += reduced(scale);
  return total / static_cast<double>(task.accumulate);
}

// Replicas lie far apart, the devices of one replica together.
LayerTotals megatron(const Sizes& s, const PrimeparTask& task, const PrimeparMachine& machine,
                     int data, int tensor, bool sequence) {
  const GroupShape group{tensor, 1}, replicas{data, tensor};
  const double d = data, t = tensor;
  const double activation = s.tokens / d * s.hidden * s.element;
  LayerTotals cost;
  cost.compute = compute(s, machine, sequence ? 1 / (d * t) : 1 / d);
  if (sequence) {
    // Forward gathers twice and scatters twice, backward the reverse, and the two inputs that are
    // kept in parts are gathered again for the weights' gradients.
    cost.all_reduce =
        6 * machine.all_gather(activation, group) + 4 * machine.reduce_scatter(activation, group);
  } else {
    cost.all_reduce = 4 * machine.all_reduce(activation, group);
  }
  cost.gradient_reduce = gradient_reduce(s, t, replicas, task, machine);
  cost.states = (s.weights / t + s.norms) * kStateBytes;
  cost.stash = s.element * s.tokens / d * (4 * s.hidden / (sequence ? t : 1) + s.inner_width / t);
  cost.workspace = tensor > 1 ? activation : 0;
  return cost;
}

LayerTotals summa(const Sizes& s, const PrimeparTask& task, const PrimeparMachine& machine,
                  int data, int q) {
  const GroupShape row{q, 1}, column{q, q}, replicas{data, q * q};
  const double d = data, p = static_cast<double>(q) * q;
  LayerTotals cost;
  cost.compute = compute(s, machine, 1 / (d * p));
  // In each of the three products activations travel along rows and weights along columns.
  const double panels = s.tokens / d * s.inputs / q * s.element;
  const double weights = s.weights / q * s.element;
  cost.all_reduce = 3 * (machine.all_gather(panels, row) + machine.all_gather(weights, column));
  cost.gradient_reduce = gradient_reduce(s, p, replicas, task, machine);
  cost.states = (s.weights / p + s.norms / q) * kStateBytes;
  cost.stash = s.element * s.tokens / d * (4 * s.hidden + s.inner_width) / p;
  cost.workspace = s.widest / p * s.element;
  return cost;
}

LayerTotals zero3(const Sizes& s, const PrimeparMachine& machine) {
  const int n = machine.devices();
  const GroupShape all{n, 1};
  const double weights = (s.weights + s.norms) * s.element;
  LayerTotals cost;
  cost.compute = compute(s, machine, 1.0 / n);
  const double moved = 2 * machine.all_gather(weights, all) + machine.reduce_scatter(weights, all);
  cost.ring_hidden = std::min(cost.compute, moved);
  cost.ring_exposed = moved - cost.ring_hidden;
  cost.states = (s.weights + s.norms) / n * kStateBytes;
  cost.stash = s.element * s.tokens / n * (4 * s.hidden + s.inner_width);
  cost.workspace = 2 * weights;  // this layer's weights and the next one's
  return cost;
}

bool whole(std::int64_t size, int parts) { return size % parts == 0; }

}  // namespace

std::string name_of(Scheme scheme) {
  switch (scheme) {
    case Scheme::megatron:
      return "Megatron";
    case Scheme::megatron_sequence:
      return "Megatron + SP";
    case Scheme::summa:
      return "2D SUMMA";
    case Scheme::zero3:
      return "ZeRO-3";
  }
  return {};
}

std::vector<SchemePlan> scheme_plans(Scheme scheme, const PrimeparTask& task,
                                     const PrimeparMachine& machine) {
  const Sizes s = sizes_of(task);
  const LayerShape& block = task.block;
  const int n = machine.devices();
  std::vector<SchemePlan> plans;
  for (int data = 1; data <= n; data *= 2) {
    const int inner = n / data;
    if (!whole(task.batch, data)) break;
    const auto add = [&](const LayerTotals& totals) {
      plans.push_back({scheme, data, inner, totals});
    };
    const bool heads_fit = whole(block.heads, inner) && whole(block.ffn, inner);
    switch (scheme) {
      case Scheme::megatron:
        if (heads_fit) add(megatron(s, task, machine, data, inner, false));
        break;
      case Scheme::megatron_sequence:
        if (heads_fit && inner > 1 && whole(block.tokens, inner))
          add(megatron(s, task, machine, data, inner, true));
        break;
      case Scheme::summa: {
        const int q = static_cast<int>(std::lround(std::sqrt(inner)));
        if (q > 1 && q * q == inner && whole(block.heads, q) && whole(block.tokens, q))
          add(summa(s, task, machine, data, q));
        break;
      }
      case Scheme::zero3:
        if (inner == 1) add(zero3(s, machine));
        break;
    }
  }
  return plans;
}

const SchemePlan* fastest(const std::vector<SchemePlan>& plans) {
  const auto best = std::ranges::min_element(
      plans, {}, [](const SchemePlan& plan) { return plan.totals.time(); });
  return best == plans.end() ? nullptr : &*best;
}

}  // namespace braid
