#include "tests/referee/layer_communication.h"

#include <algorithm>

namespace braid::referee {

namespace {

constexpr double kCountBytes = 8;  // of a number of routed rows
constexpr double kScoresBackward = 2.5;

// Two chunks where both halves of a device's tokens are equal and a chunk has 512 rows in the
// products, else one (planner/strategy/token_chunks.h).
int chunks_of(const LayerOnStage& l) {
  const std::int64_t seen = l.shape.tokens / l.strategy.cp, own = seen / l.strategy.tp;
  const bool long_enough = static_cast<double>(seen) * l.samples() >= 2 * 512;
  return own % 2 == 0 && own > 0 && long_enough ? 2 : 1;
}

// Seconds of a block's products in one pass: the pass's seconds by FLOPs.
struct ProductSeconds {
  double attention_inward = 0, scores = 0, attention_outward = 0;
  double ffn_inward = 0, ffn_outward = 0;
  double ffn() const { return ffn_inward + ffn_outward; }
};

ProductSeconds shares(const DeviceFlops& f, double seconds, double scores_count) {
  const double scores = scores_count * f.scores;
  const double all =
      f.attention_inward + scores + f.attention_outward + f.ffn_inward + f.ffn_outward;
  const double each = seconds / all;
  return {each * f.attention_inward, each * scores, each * f.attention_outward, each * f.ffn_inward,
          each * f.ffn_outward};
}

// A block under Megatron with sequence parallelism (docs/cost-model.md, "A block under Megatron").
PassSeconds megatron_block(const LayerOnStage& l, const ComputeSeconds& compute) {
  const Setting& setting = l.setting;
  const double chunks = chunks_of(l), later = (chunks - 1) / chunks;
  const double whole = l.activation(static_cast<double>(l.shape.hidden));
  const auto gather = [&](double bytes) {
    return l.collectives.all_gather(l.groups.tensor, bytes);
  };
  const double chunk = gather(whole / chunks);  // a reduce-scatter takes as long
  const double all_chunks = chunks * chunk;
  const double routed = gather(whole * static_cast<double>(l.shape.experts_per_token));
  const double counts =
      gather(static_cast<double>(l.shape.experts * l.strategy.tp) / l.strategy.ep * kCountBytes);
  const DeviceFlops flops = flops_of(l.shape, l.strategy, l.samples());
  const bool mixture = l.shape.experts > 0, shared = l.shape.shared_ffn > 0;

  const ProductSeconds f = shares(flops, compute.forward, 1);
  // The first chunk is gathered, and the last scattered, beside nothing.
  const auto beside_chunks = [&](double products) {
    return chunk + exposed(later * products, (chunks - 1) * chunk);
  };
  double forward = beside_chunks(f.attention_inward) + beside_chunks(f.attention_outward);
  forward +=
      mixture ? 2 * routed + counts + (shared ? 2 * gather(whole) : 0) : 2 * beside_chunks(f.ffn());

  const ProductSeconds input = shares(flops, compute.backward_input, kScoresBackward);
  const ProductSeconds weight = shares(flops, compute.backward_weight, 0);
  const bool full = l.strategy.recompute == Recompute::full;
  const bool defers = setting.defers;
  double backward = 0;
  if (mixture) {
    backward += 3 * routed + (shared ? 3 * gather(whole) : 0);
  } else {
    // The gradient of the output arrives beside the inward weight gradient of the layer behind,
    // taken to be as long as this one's; recomputation needs its memory.
    backward += exposed(full || defers ? 0 : weight.attention_inward, all_chunks);
    backward += exposed(defers ? weight.ffn_outward : input.ffn(), all_chunks);
    backward += exposed(defers ? 0 : weight.ffn_outward, all_chunks);
  }
  const double ffn_weight = mixture ? weight.ffn() : weight.ffn_inward;
  backward += exposed(defers ? 0 : ffn_weight, gather(whole));
  backward += exposed(defers ? weight.attention_outward : input.attention_inward + input.scores,
                      gather(whole));
  backward += exposed(defers ? 0 : weight.attention_outward, all_chunks);
  return {forward, backward + (full ? forward : 0)};
}

// Around attention each device exchanges its tokens' q, k, v and output for its heads' of all
// tokens; backward the same of their gradients, and of the output for the weights' gradient.
PassSeconds ulysses_block(const LayerOnStage& l) {
  const auto exchange = [&](std::int64_t heads) {
    const double width = static_cast<double>(heads * l.shape.head_dim);
    return l.collectives.all_to_all(l.groups.tensor, l.activation(width) / l.strategy.tp);
  };
  const double queries = exchange(l.shape.heads), keys = exchange(l.shape.kv_heads);
  const double forward = 2 * queries + 2 * keys;
  const bool full = l.strategy.recompute == Recompute::full;
  return {forward, 3 * queries + 2 * keys + (full ? forward : 0)};
}

// Logits are cut by vocabulary: of each token the largest, then the sum of exponentials and the
// label's, travel in fp32. Forward goes on to the gradient of the head's input.
PassSeconds megatron_head(const LayerOnStage& l) {
  const double whole = l.activation(static_cast<double>(l.shape.hidden));
  const double word = 4 * l.samples() * static_cast<double>(l.shape.tokens) / l.strategy.cp;
  const Groups& group = l.groups.tensor;
  return {2 * l.collectives.all_gather(group, whole) + l.collectives.all_reduce(group, word) +
              l.collectives.all_reduce(group, 2 * word),
          0};
}

}  // namespace

PassSeconds tensor_collectives(const LayerOnStage& l, const ComputeSeconds& compute) {
  if (l.strategy.tp == 1) return {};
  const bool block = l.shape.kind == LayerKind::block;
  if (l.strategy.tp_kind == TensorKind::ulysses) return block ? ulysses_block(l) : PassSeconds{};
  if (block) return megatron_block(l, compute);
  if (l.shape.kind == LayerKind::head) return megatron_head(l);
  // Rows of the table that other ranks have: a scatter of the sum, a gather of its gradient.
  const double moved =
      l.collectives.all_gather(l.groups.tensor, l.activation(static_cast<double>(l.shape.hidden)));
  return {moved, moved};
}

PassSeconds context_collectives(const LayerOnStage& l, const ComputeSeconds& compute) {
  const Strategy& s = l.strategy;
  if (s.cp == 1 || l.shape.kind != LayerKind::block) return {};
  // Keys and values of a device's heads, one at least.
  const std::int64_t heads = std::max<std::int64_t>(1, l.shape.kv_heads / s.tp);
  const double block = l.activation(2 * static_cast<double>(heads * l.shape.head_dim));
  const auto shift = [&](double bytes) {
    return l.collectives.ring_shift(l.groups.context, bytes);
  };
  const double keys = (s.cp - 1) * shift(block);
  const double gradients = s.cp * shift(block * 4 / l.element());  // in fp32
  const double forward = exposed(compute.scores, keys);
  PassSeconds pass{forward, exposed(kScoresBackward * compute.scores, keys) + gradients};
  if (s.recompute != Recompute::none) pass.backward += forward;
  return pass;
}

PassSeconds expert_collectives(const LayerOnStage& l) {
  const Strategy& s = l.strategy;
  if (s.ep == 1) return {};
  const double own = l.activation(static_cast<double>(l.shape.hidden)) / s.tp;
  const auto exchange = [&](double bytes) {
    return l.collectives.all_to_all(l.groups.experts, bytes);
  };
  const double rows = 2 * exchange(own * static_cast<double>(l.shape.experts_per_token));
  const double forward = rows + exchange(static_cast<double>(l.shape.experts) * kCountBytes);
  return {forward, rows + (s.recompute == Recompute::full ? forward : 0)};
}

}  // namespace braid::referee
