#include "planner/model/layer.h"

#include <algorithm>
#include <cmath>

#include "planner/core/error.h"

namespace braid {

namespace {

// What the fullest rank holds when `whole` is cut over `ranks`. Key and value heads fewer than the
// ranks are replicated, which is the same formula: ceil(2 / 8) = 1.
constexpr std::int64_t per_rank(std::int64_t whole, std::int64_t ranks) {
  return (whole + ranks - 1) / ranks;
}

std::int64_t norm_parameters(NormKind norm, std::int64_t width) {
  return norm == NormKind::rms_norm ? width : 2 * width;
}

// Matrices between hidden and ffn: up and down, and a gate where there is one.
std::int64_t ffn_matrices(Activation activation) { return is_gated(activation) ? 3 : 2; }

// Column-parallel q, k, v with their biases; row-parallel output whose bias every rank holds.
std::int64_t attention_parameters(const LayerShape& layer, std::int64_t tensor,
                                  std::int64_t hidden) {
  const std::int64_t q = per_rank(layer.heads, tensor) * layer.head_dim;
  const std::int64_t kv = per_rank(layer.kv_heads, tensor) * layer.head_dim;
  std::int64_t total = hidden * (q + 2 * kv) + q * hidden;
  if (layer.qkv_bias) total += q + 2 * kv;
  if (layer.attention_out_bias) total += hidden;
  if (layer.qk_norm) total += 2 * layer.head_dim;
  return total;
}

std::int64_t ffn_parameters(const LayerShape& layer, std::int64_t width, std::int64_t tensor,
                            std::int64_t hidden) {
  const std::int64_t columns = per_rank(width, tensor);
  const std::int64_t matrices = ffn_matrices(layer.activation);
  std::int64_t total = matrices * hidden * columns;
  if (layer.ffn_bias) total += (matrices - 1) * columns + hidden;
  return total;
}

std::int64_t block_parameters(const LayerShape& layer, std::int64_t tensor, std::int64_t experts,
                              std::int64_t hidden) {
  const std::int64_t norm = norm_parameters(layer.norm, hidden);
  std::int64_t total = 0;
  if (layer.attention != AttentionKind::none) {
    total += norm + attention_parameters(layer, tensor, hidden);
    total += layer.position_bias * per_rank(layer.heads, tensor);
  }
  if (layer.cross_tokens > 0) total += norm + attention_parameters(layer, tensor, hidden);
  if (layer.final_norm) total += norm;
  if (layer.ffn == 0) return total;
  total += norm;
  if (layer.experts == 0) return total + ffn_parameters(layer, layer.ffn, tensor, hidden);
  total += layer.hidden * layer.experts;  // the router, which every rank holds
  total += expert_parameters_per_rank(layer, tensor, experts);
  if (layer.shared_ffn > 0) total += ffn_parameters(layer, layer.shared_ffn, tensor, hidden);
  return total;
}

// Only the rows of the vocabulary are cut; positions, segments, patches, norms and the tables that
// blocks share are small.
std::int64_t embedding_parameters(const LayerShape& layer, std::int64_t tensor) {
  std::int64_t rows = per_rank(layer.vocab, tensor) + layer.positions + layer.token_types;
  if (layer.patch_inputs > 0) rows += layer.patch_inputs + 1;  // the projection and its bias
  if (layer.class_token) ++rows;
  std::int64_t total = rows * layer.hidden + layer.position_bias * layer.heads;
  if (layer.embedding_norm) total += norm_parameters(layer.norm, layer.hidden);
  return total;
}

std::int64_t head_parameters(const LayerShape& layer, std::int64_t tensor) {
  const std::int64_t rows = per_rank(layer.vocab, tensor);
  std::int64_t total = 0;
  if (layer.final_norm) total += norm_parameters(layer.norm, layer.hidden);
  if (layer.head_dense > 0)  // dense with bias, activation, norm (BERT's transform)
    total += (layer.hidden + 1) * layer.head_dense + norm_parameters(layer.norm, layer.head_dense);
  if (!layer.tied) total += rows * (layer.head_dense > 0 ? layer.head_dense : layer.hidden);
  if (layer.head_bias) total += rows;
  return total;
}

// (query, key) pairs of one head that are scored. A causal query sees its past: the first `visible`
// queries see a triangle, the later ones a full window; without a window that is half of the
// square.
double scored_pairs(const LayerShape& layer) {
  const auto tokens = static_cast<double>(layer.tokens);
  const auto visible =
      static_cast<double>(layer.window == 0 ? layer.tokens : std::min(layer.window, layer.tokens));
  return layer.attention == AttentionKind::causal ? visible * (tokens - visible / 2)
                                                  : visible * tokens;
}

Flops matmul(std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  return Flops(2.0 * static_cast<double>(rows) * static_cast<double>(inner) *
               static_cast<double>(columns));
}

LayerFlops block_flops(const LayerShape& layer, std::int64_t tensor) {
  LayerFlops flops;
  const std::int64_t q = layer.heads * layer.head_dim;
  const std::int64_t kv = kv_heads_of_group(layer, tensor) * layer.head_dim;
  const std::int64_t tokens = layer.tokens;
  if (layer.attention != AttentionKind::none) {
    flops.matmul += matmul(tokens, layer.hidden, q + 2 * kv) + matmul(tokens, q, layer.hidden);
    flops.attention += Flops(2 * 2.0 * scored_pairs(layer) * static_cast<double>(q));
  }
  if (layer.cross_tokens > 0) {
    flops.matmul += matmul(tokens, layer.hidden, q) + matmul(tokens, q, layer.hidden) +
                    matmul(layer.cross_tokens, layer.hidden, 2 * kv);
    flops.attention += 2.0 * matmul(tokens, layer.cross_tokens, q);
  }
  const std::int64_t active =
      layer.experts > 0 ? layer.experts_per_token * layer.ffn + layer.shared_ffn : layer.ffn;
  flops.matmul += matmul(tokens, layer.hidden, ffn_matrices(layer.activation) * active);
  flops.matmul += matmul(tokens, layer.hidden, layer.experts);
  return flops;
}

Flops head_flops(const LayerShape& layer) {
  const std::int64_t predictions = layer.pooled ? 1 : layer.tokens;
  const std::int64_t width = layer.head_dense > 0 ? layer.head_dense : layer.hidden;
  return matmul(predictions, layer.hidden, layer.head_dense) +
         matmul(predictions, width, layer.vocab);
}

}  // namespace

std::int64_t expert_parameters_per_rank(const LayerShape& layer, std::int64_t tensor,
                                        std::int64_t experts) {
  if (layer.experts == 0) return 0;
  return per_rank(layer.experts, experts) * ffn_parameters(layer, layer.ffn, tensor, layer.hidden);
}

std::int64_t parameters_per_rank(const LayerShape& layer, std::int64_t tensor, std::int64_t experts,
                                 std::int64_t hidden) {
  internal_check(tensor >= 1 && experts >= 1 && hidden >= 1, "split degrees are positive");
  switch (layer.kind) {
    case LayerKind::embedding:
      return embedding_parameters(layer, tensor);
    case LayerKind::block:
      return block_parameters(layer, tensor, experts, per_rank(layer.hidden, hidden));
    case LayerKind::merge:  // column-parallel behind a replicated norm
      return norm_parameters(layer.norm, 4 * layer.hidden) +
             4 * layer.hidden * per_rank(layer.merge_outputs, tensor);
    case LayerKind::head:
      return head_parameters(layer, tensor);
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

std::int64_t tokens_behind(const LayerShape& layer) {
  return layer.kind == LayerKind::merge ? layer.tokens / 4 : layer.tokens;
}

std::int64_t width_behind(const LayerShape& layer) {
  return layer.kind == LayerKind::merge ? layer.merge_outputs : layer.hidden;
}

bool merges_in_place(const LayerShape& layer, std::int64_t devices) {
  const auto side = std::llround(std::sqrt(static_cast<double>(layer.tokens)));
  return side * side == layer.tokens && side % (2 * devices) == 0;
}

std::int64_t largest_matrix_per_rank(const LayerShape& layer, std::int64_t tensor) {
  switch (layer.kind) {
    case LayerKind::embedding:
      return layer.patch_inputs * layer.hidden;
    case LayerKind::block: {
      const std::int64_t heads =
          per_rank(layer.heads, tensor) + 2 * per_rank(layer.kv_heads, tensor);
      const std::int64_t inputs = ffn_matrices(layer.activation) - 1;  // all but the last
      return layer.hidden * std::max(heads * layer.head_dim, inputs * per_rank(layer.ffn, tensor));
    }
    case LayerKind::merge:
      return 4 * layer.hidden * per_rank(layer.merge_outputs, tensor);
    case LayerKind::head:
      return per_rank(layer.vocab, tensor) *
             (layer.head_dense > 0 ? layer.head_dense : layer.hidden);
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

std::int64_t parameters(const LayerShape& layer) { return parameters_per_rank(layer, 1, 1); }

std::int64_t kv_heads_of_group(const LayerShape& layer, std::int64_t tensor) {
  return per_rank(layer.kv_heads, tensor) * tensor;
}

LayerFlops forward_flops(const LayerShape& layer, std::int64_t tensor) {
  switch (layer.kind) {
    case LayerKind::embedding:  // a lookup is free; patches go through a matrix
      return {matmul(layer.tokens - (layer.class_token ? 1 : 0), layer.patch_inputs, layer.hidden),
              Flops()};
    case LayerKind::block:
      return block_flops(layer, tensor);
    case LayerKind::merge:
      return {matmul(layer.tokens / 4, 4 * layer.hidden, layer.merge_outputs), Flops()};
    case LayerKind::head:
      return {head_flops(layer), Flops()};
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

LayerFlops recompute_flops(const LayerShape& layer, Recompute recompute) {
  // Embedding and head keep what they keep under every setting: there is nothing to win. A merge
  // makes its norm again, and no product.
  if (layer.kind != LayerKind::block) return {};
  switch (recompute) {
    case Recompute::none:
      return {};
    case Recompute::selective:
      return {Flops(), forward_flops(layer).attention};
    case Recompute::full:
      return forward_flops(layer);
  }
  internal_failure("unknown recomputation", std::source_location::current());
}

std::string name_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::embedding:
      return "embedding";
    case LayerKind::block:
      return "block";
    case LayerKind::merge:
      return "merge";
    case LayerKind::head:
      return "head";
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

std::string name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  internal_failure("unknown recomputation", std::source_location::current());
}

std::string name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp8:
      return "fp8";
  }
  internal_failure("unknown precision", std::source_location::current());
}

}  // namespace braid
