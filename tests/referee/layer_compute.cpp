// Compute of a layer on one device, from its matrices.

#include <algorithm>
#include <cmath>

#include "planner/cost/assumptions.h"
#include "tests/referee/layer.h"

namespace braid::referee {

namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

double norm_elements(const LayerShape& l, double width) {
  return l.norm == NormKind::rms_norm ? width : 2 * width;
}

// A multiplication and an addition for each element of the matrix and each row.
double product(double rows, double inner, double columns) { return 2 * rows * inner * columns; }

// (query, key) pairs that one head scores in one sample: half of the square under a causal mask.
double pairs(const LayerShape& l) {
  const double all = real(l.tokens) * real(l.tokens);
  return l.attention == AttentionKind::causal ? all / 2 : all;
}

// Matrices that see the block's input: up, and a gate.
double inward_matrices(const LayerShape& l) { return is_gated(l.activation) ? 2 : 1; }

double ways(const Strategy& s) { return s.tp_kind == TensorKind::megatron ? s.tp : 1; }

// What the fullest of `ranks` holds of `count` things that are not cut themselves.
double fullest(std::int64_t count, double ranks) { return std::ceil(real(count) / ranks); }

double mixture_parameters(const LayerShape& l, const Strategy& s) {
  if (l.experts == 0) return 0;
  const double matrices = inward_matrices(l) + 1;
  double one = matrices * real(l.hidden) * fullest(l.ffn, ways(s));
  if (l.ffn_bias) one += inward_matrices(l) * fullest(l.ffn, ways(s)) + real(l.hidden);
  return fullest(l.experts, s.ep) * one;
}

double block_parameters(const LayerShape& l, const Strategy& s) {
  const double h = real(l.hidden), t = ways(s);
  const double q = fullest(l.heads, t) * real(l.head_dim);
  const double kv = fullest(l.kv_heads, t) * real(l.head_dim);
  double sum = norm_elements(l, h) + h * (q + 2 * kv) + q * h;
  if (l.qkv_bias) sum += q + 2 * kv;
  if (l.attention_out_bias) sum += h;
  sum += norm_elements(l, h);
  const auto dense_ffn = [&](std::int64_t width) {
    const double columns = fullest(width, t);
    const double biases = l.ffn_bias ? inward_matrices(l) * columns + h : 0;
    return (inward_matrices(l) + 1) * h * columns + biases;
  };
  if (l.experts == 0) return sum + dense_ffn(l.ffn);
  sum += h * real(l.experts);  // the router
  if (l.shared_ffn > 0) sum += dense_ffn(l.shared_ffn);
  return sum;
}

}  // namespace

DeviceFlops flops_of(const LayerShape& l, const Strategy& s, double samples) {
  DeviceFlops f;
  const double own = samples * real(l.tokens) / s.cp / s.tp;  // tokens between layers
  const double seen = own * ways(s);  // Megatron's matrices see the tokens of the tensor group
  const double h = real(l.hidden);
  if (l.kind == LayerKind::head) f.other = product(seen, h, real(l.vocab) / ways(s));
  if (l.kind != LayerKind::block) return f;
  const double q = real(l.heads * l.head_dim) / ways(s);
  const double kv = fullest(l.kv_heads, ways(s)) * real(l.head_dim);
  f.attention_inward = product(seen, h, q + 2 * kv);
  f.attention_outward = product(seen, q, h);
  // Two products over the pairs: queries with keys, and scores with values.
  const double heads = real(l.heads) / s.tp;
  f.scores = samples * heads / s.cp * 2 * product(pairs(l), real(l.head_dim), 1);
  const double width =
      l.experts > 0 ? real(l.experts_per_token * l.ffn + l.shared_ffn) : real(l.ffn);
  f.ffn_inward = product(seen, h, inward_matrices(l) * width / ways(s));
  f.ffn_outward = product(seen, width / ways(s), h);
  f.other = product(own, h, real(l.experts));
  return f;
}

DeviceParameters parameters_of(const LayerShape& l, const Strategy& s, const Setting& setting) {
  DeviceParameters p;
  const double h = real(l.hidden);
  const double rows = fullest(l.vocab, ways(s));
  switch (l.kind) {
    case LayerKind::embedding:
      p.dense = (rows + real(l.positions)) * h;
      break;
    case LayerKind::block:
      p.dense = block_parameters(l, s);
      p.experts = mixture_parameters(l, s);
      break;
    case LayerKind::head:
      p.dense = (l.final_norm ? norm_elements(l, h) : 0) + (l.tied ? 0 : rows * h);
      // On one device the head reads the embedding's table.
      if (l.tied && setting.wires.num_devices() > 1) p.copied = rows * h;
      break;
    case LayerKind::merge:
      break;
  }
  return p;
}

ComputeSeconds compute_on(const DeviceType& device, const LayerShape& l, const Strategy& s,
                          const Setting& setting) {
  constexpr double kScoresBackward = 2.5;  // flash attention: five products for forward's two
  const Assumptions a;
  const double samples = setting.micro_batch / s.dp;
  const DeviceFlops flops = flops_of(l, s, samples);
  // In fp8 only the products of blocks are.
  const bool fp8 = setting.precision == Precision::fp8 && l.kind == LayerKind::block;
  const double wide =
      setting.precision == Precision::fp32 ? device.peak_fp32.value() : device.peak_bf16.value();
  const double rate =
      fp8 ? device.peak_fp8->value() * a.fp8_efficiency : wide * a.matmul_efficiency;
  const double matmul = flops.matmul() / rate;
  const double scores = flops.scores / (wide * a.attention_efficiency);
  const double traffic =
      samples * real(forward_traffic(l, setting.precision).value()) / s.cp / s.tp;
  const double elementwise = traffic / (device.memory_bandwidth.value() * a.memory_efficiency);
  const double launch = a.layer_overhead.value();
  ComputeSeconds c;
  c.scores = scores;
  c.forward = matmul + scores + elementwise + launch;
  c.backward_input = matmul + kScoresBackward * scores + 2 * elementwise + launch;
  c.backward_weight = matmul;
  if (l.kind == LayerKind::block && s.recompute == Recompute::selective) c.recompute = scores;
  if (s.recompute == Recompute::full) c.recompute = c.forward;
  return c;
}

std::vector<const DeviceType*> types_of(const std::vector<Coordinates>& devices,
                                        const Setting& setting) {
  std::vector<const DeviceType*> types;
  for (const Coordinates& c : devices) {
    const DeviceType* type = &setting.wires.type_of(c.device);
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
  }
  return types;
}

double together(double compute, double communication) {
  const double both = std::min(compute, communication);  // of the work that overlaps
  const double alone = std::max(compute, communication) - both;
  return Assumptions{}.overlap_slowdown * both + alone;
}

double exposed(double compute, double communication) {
  return together(compute, communication) - compute;
}

double reduce_seconds(const LayerSeconds& l, const std::vector<double>& spare) {
  double slowest = 0;
  for (std::size_t i = 0; i < l.backward.size(); ++i) {
    const Backward& b = l.backward[i];
    const double room = b.compute + (spare.empty() ? 0 : spare[i]);
    slowest = std::max(slowest, exposed(room, l.gradients) - b.gathered);
  }
  return slowest + l.exposed_gradients;
}

}  // namespace braid::referee
