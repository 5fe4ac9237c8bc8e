// The price of a layer in a square of devices: what walks beside the steps of each product, and the
// collectives around them.

#include <algorithm>

#include "planner/cost/braid_work.h"
#include "planner/cost/square_cost.h"

namespace braid {

std::array<SquareProduct, 4> square_products(const LayerShape& block, const Strategy& strategy,
                                             double samples) {
  const double side = strategy.square;
  const double rows = samples * static_cast<double>(block.tokens) / strategy.cp / side;
  const double hidden = static_cast<double>(block.hidden) / side;
  const double inputs = is_gated(block.activation) ? 2 : 1;
  const auto heads = static_cast<double>(block.heads * block.head_dim);
  const auto kv = static_cast<double>(block.kv_heads * block.head_dim);
  const auto ffn = static_cast<double>(block.ffn);
  const double all = heads + 2 * kv + heads + (inputs + 1) * ffn;
  const auto inward = [&](double columns) {
    const double mine = columns / strategy.tensor_split();
    return SquareProduct{rows * hidden, hidden * mine, rows * mine, columns / all, false};
  };
  const auto outward = [&](double columns) {
    const double mine = columns / strategy.tensor_split();
    return SquareProduct{rows * mine, hidden * mine, rows * hidden, columns / all, true};
  };
  return {inward(heads + 2 * kv), outward(heads), inward(inputs * ffn), outward(ffn)};
}

double walking_elements(const std::array<SquareProduct, 4>& products, int side) {
  double pair = 0;
  for (const SquareProduct& p : products)
    pair = std::max({pair, p.x + p.matrix, p.y + p.matrix, p.x + p.y});
  return side > 2 ? 2 * pair : pair;
}

void BraidModel::communicate_in_square(const Work& w, LayerTime& time) const {
  const LayerShape& shape = w.facts.shape;
  const Strategy& s = w.strategy;
  const double side = s.square;
  const auto element = static_cast<double>(bytes_of(settings_.precision));
  constexpr double kSum = 4;  // bytes: sums and statistics are fp32
  const bool repeats = s.recompute == Recompute::full;
  const GroupShape outer = group_along(w.site.mesh, s, Axis::outer);
  const GroupShape column = group_along(w.site.mesh, s, Axis::row);
  const GroupShape row = group_along(w.site.mesh, s, Axis::column);
  const double tokens = w.samples * static_cast<double>(shape.tokens) / s.cp / side;
  double forward = 0, backward = 0;

  // Two norms: the sum of squares, or means and deviations; backward sums as many numbers.
  const double words = tokens / s.outer() * kSum;
  if (shape.norm == NormKind::rms_norm) {
    forward += 2 * network_.all_reduce(words, row, w.where);
    backward += 2 * network_.all_reduce(words, row, w.where);
  } else {
    forward += 2 * network_.all_gather(2 * side * words, row, w.where);
    backward += 2 * network_.all_reduce(2 * words, row, w.where);
  }
  // As megatron's, of the part of the hidden width that a rank holds.
  const double hidden = tokens * static_cast<double>(shape.hidden) / side * element;
  const double gather = 2 * network_.all_gather(hidden, outer, w.where);
  const double scatter = 2 * network_.reduce_scatter(hidden, outer, w.where);
  forward += gather + scatter;
  backward += 2 * gather + scatter;
  if (!rows_share_samples(s, w.site.micro_batch)) {
    // Keys and values of all rows; gathered once more for their gradients, which are scattered.
    const double kv = side * tokens * 2 * static_cast<double>(shape.kv_heads * shape.head_dim) *
                      element / s.tensor_split();
    forward += network_.all_gather(kv, column, w.where);
    backward += network_.all_gather(kv, column, w.where);
    backward += network_.reduce_scatter(kv, column, w.where);
  }

  // Both blocks of a step leave through the link of the one that goes further.
  const auto message = [&](double elements, double bytes) {
    return std::max(network_.ring_shift(elements * bytes, column, w.where),
                    network_.ring_shift(elements * bytes, row, w.where));
  };
  const Overlap beside = overlap(w, Collective::point_to_point, 2);
  // The products of each phase take what those of the weight gradients do, which are nothing else.
  const double products = std::min(w.compute.forward, w.compute.backward_weight);
  double hides = 0;
  const auto beside_step = [&](const SquareProduct& p, double seconds) {
    const double exposed = beside.exposed(products * p.share / side, seconds);
    hides += seconds - exposed;
    return exposed;
  };
  for (const SquareProduct& p : square_products(shape, s, w.samples)) {
    const double steps = side - 1;
    double there = 0, back = 0;
    for (int step = 0; step < steps; ++step) {
      there += beside_step(p, message(p.x + p.matrix, element));
      back += beside_step(p, message(p.y + p.matrix, element));
      back += beside_step(p, message(p.x + p.y, element));
    }
    if (s.variant == SquareVariant::paper) {
      // The matrix is put right ahead of backward, and the gradient's sum moves once. Activations
      // change place behind every product, around an outward one on both sides; the fullest row's.
      back += message(p.matrix, element) + beside_step(p, message(p.matrix, kSum)) +
              message(p.x, element);
      if (p.outward) {
        there += message(p.x, element) + message(p.y, element);
        back += message(p.y, element) + message(p.x, element);
      }
    }
    if (repeats) {
      back += there;
      hides += steps * message(p.x + p.matrix, element) -
               steps * beside.exposed(products * p.share / side, message(p.x + p.matrix, element));
    }
    time.forward_tensor += correction_.tensor * there;
    time.backward_tensor += correction_.tensor * back;
  }
  time.hidden_tensor = correction_.tensor * std::max(0.0, hides);
  if (repeats) backward += forward;
  // Each exchange begins when the last of its ranks has come.
  time.forward_tensor += correction_.tensor * forward + waiting(s.tp, w.compute.forward, kMeetings);
  time.backward_tensor +=
      correction_.tensor * backward + waiting(s.tp, w.compute.all_backward(), kMeetings);
}

// Products of bf16 factors are made in fp32 and added to what earlier steps gave, in passes of
// their own: bytes of each element.
void BraidModel::add_up_in_square(const Work& w, LayerTime& time) const {
  if (settings_.precision == Precision::fp32) return;
  constexpr double kNext = 4 + 4 + 4,
                   kLast = 4 + 4 + 2;  // two read, the sum or its rounding written
  const double steps = w.strategy.square;
  const double activation = (steps - 2) * kNext + kLast;
  const double rate = memory_rate(w.device);
  for (const SquareProduct& p : square_products(w.facts.shape, w.strategy, w.samples)) {
    const double forward = p.y * activation / rate;
    time.forward_compute += forward;
    time.backward_input_compute += p.x * activation / rate;
    time.backward_weight_compute += p.matrix * (steps - 1) * kNext / rate;
    if (w.strategy.recompute == Recompute::full) time.recompute += forward;
  }
}

// Blocks on their way, a sum that is wider than the activations with the product that joins it, and
// the keys of all rows with their gradients.
double BraidModel::square_workspace(const Work& w) const {
  const Strategy& s = w.strategy;
  const LayerShape& shape = w.facts.shape;
  const auto element = static_cast<double>(bytes_of(settings_.precision));
  const auto products = square_products(shape, s, w.samples);
  double bytes = element * walking_elements(products, s.square);
  if (settings_.precision != Precision::fp32) {
    double widest = 0;
    for (const SquareProduct& p : products) widest = std::max({widest, p.x, p.y});
    bytes += 2 * 4 * widest;
  }
  if (!rows_share_samples(s, w.site.micro_batch)) {
    const double keys = w.samples * static_cast<double>(shape.tokens) / s.cp * 2 *
                        static_cast<double>(shape.kv_heads * shape.head_dim) / s.tensor_split();
    bytes += 2 * element * keys;
  }
  return bytes;
}

}  // namespace braid
