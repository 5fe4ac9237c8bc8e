#pragma once
// One kind of layer, as shapes. Everything a planner must know of it is arithmetic on these
// numbers.

#include <cstdint>
#include <string>

#include "planner/core/units.h"

namespace braid {

enum class LayerKind {
  embedding,  // token (or patch) embedding with its positions
  block,      // attention and feed-forward with their norms
  merge,      // Swin's patch merging between two resolutions
  head,       // final norm, output projection and loss
};

enum class AttentionKind { none, causal, bidirectional, window };
enum class NormKind { layer_norm, rms_norm };
enum class Activation {
  gelu,  // x Φ(x)
  relu,
  swiglu,      // the gated ones have a third matrix
  geglu,       // a gate of gelu
  gelu_tanh,   // Φ by its tanh formula (GPT-2)
  geglu_tanh,  // a gate of gelu_tanh (T5 1.1)
};

constexpr bool is_gated(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
    case Activation::geglu:
    case Activation::geglu_tanh:
      return true;
    case Activation::gelu:
    case Activation::relu:
    case Activation::gelu_tanh:
      return false;
  }
  return false;
}

// Rotary frequencies stretched to reach further than the positions trained at first. A frequency
// that turns fewer than `low_frequency` times within `original_positions` is divided by `factor`,
// one that turns more than `high_frequency` times stays, and in between the two are blended
// (Llama 3.1). Without original positions all frequencies are divided (linear scaling).
struct RotaryScaling {
  double factor = 1;  // 1: no scaling
  double low_frequency = 1;
  double high_frequency = 4;
  std::int64_t original_positions = 0;

  bool operator==(const RotaryScaling&) const = default;
};

// No row of an embedding's table is padding.
inline constexpr std::int64_t kNoPadding = -1;

struct LayerShape {
  LayerKind kind = LayerKind::block;

  // Tokens of one sample that pass through, and their width.
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;

  // Embedding and encoder of an encoder-decoder: the decoder's tokens, which the embedding makes
  // and which pass by the encoder's blocks.
  std::int64_t carried_tokens = 0;

  // Attention.
  AttentionKind attention = AttentionKind::none;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t window = 0;        // tokens a query can see where that is less than all (0: all)
  std::int64_t window_shift = 0;  // rows and columns by which every second block of a run moves its
                                  // square windows (Swin)
  std::int64_t cross_tokens = 0;  // cross-attention to an encoder's tokens (0: none)
  std::int64_t position_bias = 0;  // entries of a learned relative-position table, per head; where
                                   // all blocks share one (T5), the embedding holds it
  std::int64_t bias_buckets = 0;   // of that shared table: entries of this block's stack
  std::int64_t bias_distance = 0;  // tokens apart from which on all pairs are in the last of them
  bool unscaled = false;           // scores are not divided by √head_dim (T5)
  bool alibi = false;              // scores fall with distance, by a slope of each head (BLOOM)
  bool rotary = false;             // rotary position embedding on q and k
  double rotary_base = 10'000;     // pair i of a head turns by rotary_base^(-2i / head_dim) a token
  RotaryScaling rotary_scaling = {};

  // Feed-forward; experts > 0 makes it a mixture with `experts_per_token` of them active.
  std::int64_t ffn = 0;
  Activation activation = Activation::gelu;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t shared_ffn = 0;  // width of an always-active expert (0: none)

  // What carries a bias, and which norms stand in the block.
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool ffn_bias = false;
  bool qk_norm = false;    // an RMSNorm over each head of q and k (Qwen3)
  bool post_norm = false;  // norms stand behind the residual sums, not ahead of sub-layers (BERT)
  NormKind norm = NormKind::layer_norm;
  double norm_epsilon = 1e-5;  // added to the variance, of qk_norm too

  // Embedding and head.
  std::int64_t vocab = 0;                // rows of the table, or classes of a classifier
  std::int64_t padding_id = kNoPadding;  // embedding: the token whose row starts at zero and gets
                                         // no gradient from looking it up
  std::int64_t positions = 0;            // rows of a learned position table (0: none)
  std::int64_t position_offset = 0;      // rows of it before the first token's (OPT: 2)
  std::int64_t token_types = 0;          // rows of a segment table (BERT)
  std::int64_t patch_inputs = 0;         // values of one image patch (ViT, Swin; 0: tokens are ids)
  std::int64_t head_dense = 0;  // width of a dense layer before the output projection (BERT)
  bool class_token = false;     // one learned token ahead of the patches (ViT); head: pools by
                                // taking it, and not the mean of all
  bool embedding_norm = false;
  bool final_norm = false;  // head: norm before the projection; block: norm behind the last one of
                            // an encoder (T5)
  bool head_bias = false;
  bool tied = false;        // head: the output matrix is the embedding's
  bool pooled = false;      // head: one prediction per sample, not per token
  double output_scale = 1;  // head: of what the output matrix sees (T5 1.0: 1 / √hidden)

  std::int64_t merge_outputs = 0;  // merge: width after the merge (4h in, this out)

  // A training run's first weights: matrices and tables are normal with this deviation; those that
  // write to the residual stream (attention's output, feed-forward's second) times the scale.
  double init_std = 0.02;
  double residual_init_scale = 1;  // GPT-2: 1 / √(2 × blocks)

  bool operator==(const LayerShape&) const = default;
};

enum class Recompute { none, selective, full };
// fp8: the products of blocks have factors of 8 bits, and all else is as in bf16.
enum class Precision { fp32, bf16, fp8 };

constexpr std::int64_t bytes_of(Precision precision) {
  return precision == Precision::fp32 ? 4 : 2;
}

// How the devices that share a sample cut what it keeps. Degrees of 1 give the whole layer.
struct Split {
  std::int64_t context = 1;  // tokens, all through the layer
  std::int64_t tensor = 1;   // attention's heads, and the tokens between layers
  bool matrices = true;      // whether `tensor` cuts the matrices too: each device then sees the
                             // tokens of all (Megatron), otherwise its own alone (Ulysses)
  std::int64_t square = 1;   // heads and hidden width once more, among a square's columns
  std::int64_t rows = 1;     // tokens once more, among a square's rows
};

std::int64_t parameters(const LayerShape& layer);
// Parameters that one device of a tensor-parallel group holds (norms are replicated). `hidden` cuts
// the width of a block's activations, and what lies along it.
std::int64_t parameters_per_rank(const LayerShape& layer, std::int64_t tensor, std::int64_t experts,
                                 std::int64_t hidden = 1);
// Of those, the ones that belong to experts (their gradients are reduced over another group).
std::int64_t expert_parameters_per_rank(const LayerShape& layer, std::int64_t tensor,
                                        std::int64_t experts);

// Whether the devices that share an image by its tokens merge patches without another's: each has
// whole pairs of rows.
bool merges_in_place(const LayerShape& layer, std::int64_t devices);

// Elements of the largest matrix whose gradient one product makes (q, k and v are one).
std::int64_t largest_matrix_per_rank(const LayerShape& layer, std::int64_t tensor);

// FLOPs of one sample. Multiplications and additions count one each; causal attention counts the
// half of the score matrix that is used.
struct LayerFlops {
  Flops matmul;     // linear layers
  Flops attention;  // scores and weighted sums
  Flops total() const { return matmul + attention; }
};
// `tensor` devices that cut the matrices, all together: they replicate key and value heads that are
// fewer than they.
LayerFlops forward_flops(const LayerShape& layer, std::int64_t tensor = 1);
// Key and value heads of so many devices, all together.
std::int64_t kv_heads_of_group(const LayerShape& layer, std::int64_t tensor);
// What selective or full recomputation repeats during backward.
LayerFlops recompute_flops(const LayerShape& layer, Recompute recompute);

// Bytes that memory-bound operators (norms, activations, residual adds) move in a forward pass of
// one sample.
Bytes forward_traffic(const LayerShape& layer, Precision precision);

// Bytes one sample keeps from forward to backward on the fullest of the devices that share it. Byte
// for byte what the runtime's operators save, given that each expert gets as many tokens.
Bytes saved_bytes(const LayerShape& layer, Recompute recompute, Precision precision,
                  const Split& split = {});
// What backward by input leaves to a later backward by weights, when nothing else of what was saved
// stays: what every product was made of and the gradient of what it made.
Bytes deferred_bytes(const LayerShape& layer, Precision precision, const Split& split = {});
// Of those, what the last sub-layer leaves while backward by input is at work on the others, beyond
// what it had saved.
Bytes deferred_beside_bytes(const LayerShape& layer, Precision precision, const Split& split = {});
// And how many are gradients that a tensor group has gathered, each of the tokens that its matrices
// see.
int deferred_gathers(const LayerShape& layer, const Split& split);
// Tables of a device that a layer makes once and keeps: cosines and sines of its tokens, in fp32.
Bytes table_bytes(const LayerShape& layer, const Split& split = {});
// A head makes the logits of so many of its rows at a time: all of them where that is little, else
// in as few equal parts as kLogitsAtOnce allows, two at least. Each part reads and writes the
// gradient of the head's matrix once more; parts are a whole number of kRowsStep.
inline constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 30;
inline constexpr std::int64_t kFewLogits = std::int64_t{1} << 28;
inline constexpr std::int64_t kRowsStep = 1024;
std::int64_t rows_of_logits(std::int64_t rows, std::int64_t bytes_of_row);
// Short-lived bytes of one sample at the layer's worst moment, on top of what is saved: the
// re-materialised activations under recomputation, the logits of a head.
Bytes transient_bytes(const LayerShape& layer, Recompute recompute, Precision precision);

// Tokens of one sample that a layer hands on, and their width.
std::int64_t tokens_behind(const LayerShape& layer);
std::int64_t width_behind(const LayerShape& layer);
// The activation one sample hands to the next layer, with what travels beside it: the encoder's
// output where cross-attention further down needs it, or the decoder's tokens on their way there.
Bytes boundary_bytes(const LayerShape& layer, Precision precision);

std::string name_of(LayerKind kind);
std::string name_of(Recompute recompute);
std::string name_of(Precision precision);

}  // namespace braid
