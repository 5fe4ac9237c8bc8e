// A block's collectives under megatron: what runs beside products, as the runtime's sub-layers
// arrange it (runtime/models), and what it leaves exposed.

#include <algorithm>
#include <optional>

#include "planner/cost/braid_work.h"
#include "planner/strategy/token_chunks.h"

namespace braid {

namespace {

// FLOPs of a sub-layer's products for one sample, forward.
struct PartFlops {
  double inward = 0, scores = 0, outward = 0;
  double total() const { return inward + scores + outward; }
};

// The sub-layers of a block in the order of forward, and what they add up to.
struct BlockFlops {
  PartFlops attention, ffn;
  std::optional<PartFlops> cross;

  double sum(double scores_count) const {
    const auto of = [&](const PartFlops& p) {
      return p.inward + p.outward + scores_count * p.scores;
    };
    return of(attention) + of(ffn) + (cross ? of(*cross) : 0);
  }
};

BlockFlops flops_of(const LayerShape& s, const LayerFlops& whole, std::int64_t tensor) {
  const auto tokens = static_cast<double>(s.tokens), hidden = static_cast<double>(s.hidden);
  const auto product = [&](double rows, double columns) { return 2 * rows * hidden * columns; };
  const auto q = static_cast<double>(s.heads * s.head_dim);
  const auto kv = static_cast<double>(2 * kv_heads_of_group(s, tensor) * s.head_dim);
  const double inputs = is_gated(s.activation) ? 2 : 1;
  const auto width =
      static_cast<double>(s.experts > 0 ? s.ffn * s.experts_per_token + s.shared_ffn : s.ffn);
  BlockFlops f;
  if (q == 0 || width == 0) {
    // Nothing is known of the shapes: those of a usual block.
    f.attention = {3, 0, 1};
    f.ffn = {4, 0, 4};
    return f;
  }
  f.attention = {product(tokens, q + kv), whole.attention.value(), product(tokens, q)};
  f.ffn = {product(tokens, inputs * width), 0, product(tokens, width)};
  if (s.cross_tokens > 0) {
    const auto crossed = static_cast<double>(s.cross_tokens);
    const double share = crossed / (tokens + crossed);
    f.cross = PartFlops{product(tokens, q) + product(crossed, kv), share * f.attention.scores,
                        product(tokens, q)};
    f.attention.scores *= 1 - share;
  }
  return f;
}

// Seconds of one pass's collectives: alone, and what compute leaves exposed.
struct Pass {
  double alone = 0, exposed = 0;

  void wait(double seconds) { beside(0, seconds, {}); }
  void beside(double compute, double seconds, const Overlap& overlap) {
    alone += seconds;
    exposed += overlap.exposed(compute, seconds);
  }
  double hidden() const { return std::max(0.0, alone - exposed); }
};

}  // namespace

void BraidModel::communicate_in_block(const Work& w, LayerTime& time) const {
  const LayerShape& shape = w.facts.shape;
  const Strategy& s = w.strategy;
  const auto element = static_cast<double>(bytes_of(settings_.precision));
  const double row = static_cast<double>(shape.hidden) * element;
  const double hidden = w.samples * static_cast<double>(shape.tokens) / s.cp * row;
  const double encoded = w.samples * static_cast<double>(shape.cross_tokens) / s.cp * row;
  const double routed = hidden * static_cast<double>(shape.experts_per_token);
  const bool dense = shape.experts == 0;
  const int chunks = token_chunks(s, shape.tokens, w.samples);
  const bool repeats = s.recompute == Recompute::full;
  const bool deferred = weights_waiting(w.site.shape, 0) > 0;

  const GroupShape group = group_along(w.site.mesh, s, Axis::tensor);
  const Overlap gathers = overlap(w, Collective::all_gather, s.tp);
  const Overlap scatters = overlap(w, Collective::reduce_scatter, s.tp);
  const auto gather = [&](double bytes) {
    return correction_.tensor * network_.all_gather(bytes, group, w.where);
  };
  const auto scatter = [&](double bytes) {
    return correction_.tensor * network_.reduce_scatter(bytes, group, w.where);
  };
  const double gather_chunk = gather(hidden / chunks), scatter_chunk = scatter(hidden / chunks);
  const int others = chunks - 1;

  const BlockFlops flops = flops_of(shape, w.facts.flops, s.tensor_split());
  const double ahead = w.compute.forward / flops.sum(1);
  const double by_input = w.compute.backward_input / flops.sum(kScoresBackward);
  const double by_weight = w.compute.backward_weight / flops.sum(0);

  // All chunks but the last are scattered beside the product of the next one.
  const auto scatter_forward = [&](Pass& pass, double product) {
    if (others > 0) pass.beside(product * others / chunks, others * scatter_chunk, scatters);
    pass.wait(scatter_chunk);
  };
  // And all but the first are gathered beside the products of the one ahead.
  const auto gather_forward = [&](Pass& pass, double product) {
    pass.wait(gather_chunk);
    if (others > 0) pass.beside(product * others / chunks, others * gather_chunk, gathers);
  };
  Pass forward;
  gather_forward(forward, ahead * flops.attention.inward);
  scatter_forward(forward, ahead * flops.attention.outward);
  if (flops.cross) {
    forward.wait(gather(hidden));
    forward.wait(gather(encoded));
    scatter_forward(forward, ahead * flops.cross->outward);
  }
  if (dense) {
    // Chunk by chunk through both matrices, the next one on its way.
    gather_forward(forward, ahead * flops.ffn.total());
    scatter_forward(forward, ahead * flops.ffn.total());
  } else {
    const double counts = static_cast<double>(shape.experts * s.tp) / s.ep * kCountBytes;
    forward.wait(gather(routed) + scatter(routed) + gather(counts));
    if (shape.shared_ffn > 0) forward.wait(gather(hidden) + scatter(hidden));
  }

  // The output's gradient arrives beside the inward weight gradient of the part behind, the input
  // beside products of the input's gradient, whose sum is scattered beside the outward weight
  // gradient. Where weight gradients wait for another pass, only the input has one beside it.
  Pass backward;
  double behind = repeats || deferred ? 0 : by_weight * flops.attention.inward;
  struct Moved {
    double arrives, sees, leaves;
  };
  const auto part = [&](const PartFlops& f, double beside_input, const Moved& moved) {
    backward.beside(behind, moved.arrives, gathers);
    backward.beside(deferred ? by_weight * f.outward : by_input * beside_input, moved.sees,
                    gathers);
    backward.beside(deferred ? 0 : by_weight * f.outward, moved.leaves, scatters);
    behind = deferred ? 0 : by_weight * f.inward;
  };
  if (dense) {
    part(flops.ffn, flops.ffn.total(),
         {chunks * gather_chunk, chunks * gather_chunk, chunks * scatter_chunk});
  } else {
    backward.wait(2 * gather(routed) + scatter(routed));
    if (shape.shared_ffn > 0) backward.wait(2 * gather(hidden) + scatter(hidden));
    behind = deferred ? 0 : by_weight * flops.ffn.total();
  }
  // Attention gathers its input behind its first product.
  const auto behind_outward = [](const PartFlops& f) {
    return f.inward + kScoresBackward * f.scores;
  };
  if (flops.cross)
    part(*flops.cross, behind_outward(*flops.cross),
         {gather(hidden), gather(hidden) + gather(encoded), scatter(hidden) + scatter(encoded)});
  part(flops.attention, behind_outward(flops.attention),
       {gather(hidden), gather(hidden), chunks * scatter_chunk});

  time.forward_tensor += forward.exposed;
  time.backward_tensor += backward.exposed + (repeats ? forward.exposed : 0);
  time.hidden_tensor += (repeats ? 2 : 1) * forward.hidden() + backward.hidden();
}

}  // namespace braid
