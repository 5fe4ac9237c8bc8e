// Bytes of one layer: what it keeps for backward, what lives briefly, what it moves and hands on.

#include <algorithm>

#include "planner/core/error.h"
#include "planner/model/layer.h"

namespace braid {

namespace {

constexpr std::int64_t kFp32 = 4;
constexpr std::int64_t kIndex = 8;  // int64: a token's id, a chosen expert

std::int64_t per_rank(std::int64_t whole, std::int64_t ranks) {
  return (whole + ranks - 1) / ranks;
}

// What one device holds of a sample's tokens.
struct Tokens {
  std::int64_t narrow;  // between layers
  std::int64_t wide;    // inside attention
  std::int64_t inner;   // that its matrices see
};

Tokens tokens_of(std::int64_t tokens, const Split& split) {
  const std::int64_t narrow = per_rank(tokens, split.context * split.rows * split.tensor);
  const std::int64_t wide = per_rank(tokens, split.context * split.rows);
  return {narrow, wide, split.matrices ? wide : narrow};
}

// One token's statistics that a norm keeps, in fp32: 1/rms, or mean and 1/sigma.
std::int64_t statistics(NormKind norm) { return norm == NormKind::rms_norm ? kFp32 : 2 * kFp32; }

std::int64_t pre_activations(const LayerShape& layer) { return is_gated(layer.activation) ? 2 : 1; }

// Rows of the feed-forward input that one token becomes.
std::int64_t copies(const LayerShape& layer) {
  return layer.experts > 0 ? layer.experts_per_token : 1;
}

// Feed-forward columns that one token passes through.
std::int64_t active_ffn(const LayerShape& layer) {
  return copies(layer) * layer.ffn + layer.shared_ffn;
}

// What a block keeps for backward. Norm outputs and activations are made again from the norms'
// inputs and the pre-activations, always: one pass over memory each. Where that would need other
// ranks (in a square) norm outputs are kept, and so are the inputs of a post-norm block's (BERT's)
// matrices, which no norm makes, and all that a mixture has permuted.
struct BlockBytes {
  std::int64_t input = 0;  // x: all that full recomputation keeps
  std::int64_t cheap = 0;  // attention output and log-sum-exp: selective drops these
  std::int64_t remaining = 0;

  std::int64_t kept() const { return input + cheap + remaining; }
};

BlockBytes block_bytes(const LayerShape& layer, std::int64_t bytes, const Split& split) {
  const auto [narrow, wide, inner] = tokens_of(layer.tokens, split);
  const std::int64_t h = per_rank(layer.hidden, split.square);
  const std::int64_t heads = per_rank(layer.heads, split.tensor * split.square);
  // Fewer key-value heads than devices: each holds one, which is the same formula.
  const std::int64_t kv_heads = per_rank(layer.kv_heads, split.tensor * split.square);
  const std::int64_t q = heads * layer.head_dim;
  const std::int64_t kv = kv_heads * layer.head_dim;
  const bool remakes = !layer.post_norm && split.square == 1;
  const auto add_norm = [&](BlockBytes& kept, bool mixture) {
    kept.remaining += narrow * statistics(layer.norm);
    if (!remakes || mixture) kept.remaining += narrow * h * bytes;
  };
  const std::int64_t attended = q * bytes + heads * kFp32;  // output and log-sum-exp
  BlockBytes kept;
  kept.input = narrow * h * bytes;
  int sublayers = 0;
  if (layer.attention != AttentionKind::none) {
    ++sublayers;
    add_norm(kept, false);
    kept.remaining += wide * (q + 2 * kv) * bytes;
    kept.cheap += wide * attended;
    if (layer.qk_norm)  // q and k ahead of their norm, and a 1/rms for each head
      kept.remaining += wide * ((q + kv) * bytes + (heads + kv_heads) * kFp32);
  }
  // The encoder's output, of which its keys and values are made, is kept once for all blocks.
  if (layer.cross_tokens > 0) {
    ++sublayers;
    add_norm(kept, false);
    kept.remaining += wide * q * bytes;
    kept.remaining += tokens_of(layer.cross_tokens, split).wide * 2 * kv * bytes;
    kept.cheap += wide * attended;
  }
  if (layer.ffn > 0) {
    ++sublayers;
    const std::int64_t ways = split.matrices ? split.tensor * split.square : 1;
    const std::int64_t columns =
        copies(layer) * per_rank(layer.ffn, ways) + per_rank(layer.shared_ffn, ways);
    const bool mixture = layer.experts > 0;
    add_norm(kept, mixture);
    kept.remaining += inner * pre_activations(layer) * columns * bytes;
    if (mixture) kept.cheap += inner * columns * bytes;
    // A mixture keeps its permuted inputs, its experts' outputs, the router's probabilities and
    // which experts it chose.
    if (layer.experts > 0)
      kept.remaining +=
          narrow * (2 * copies(layer) * h * bytes + layer.experts * kFp32 + copies(layer) * kIndex);
  }
  // Between two sub-layers lies a residual; x is the first one's, the output the next block's x.
  kept.remaining += narrow * std::max(0, sublayers - 1) * h * bytes;
  if (layer.final_norm)  // its input and statistics
    kept.remaining += narrow * (h * bytes + statistics(layer.norm));
  return kept;
}

// Gradients that live together at a sub-layer's worst moment: of its activation (whose place the
// activation takes when it is made again, as the pre-activation's gradient takes the
// pre-activation's) and of the sub-layer's input and output, beside the norm's output; or of
// attention's output, of q, k and v by themselves and side by side, and of input and output. A
// mixture makes its pre-activations' gradients beside them.
std::int64_t live_gradients(const LayerShape& layer, std::int64_t bytes) {
  const std::int64_t gradients = layer.experts > 0 ? pre_activations(layer) + 1 : 1;
  const std::int64_t ffn = gradients * active_ffn(layer) + 3 * copies(layer) * layer.hidden;
  const std::int64_t attention =
      (3 * layer.heads + 4 * layer.kv_heads) * layer.head_dim + 3 * layer.hidden;
  return layer.tokens * std::max(ffn, attention) * bytes;
}

std::int64_t predictions(const LayerShape& layer) { return layer.pooled ? 1 : layer.tokens; }

// A device that holds some rows of the table looks up the ids of all tokens that it can see.
std::int64_t embedding_saved(const LayerShape& layer, std::int64_t bytes, const Split& split) {
  const std::int64_t norm = layer.hidden * bytes + statistics(layer.norm);
  const auto [narrow, wide, inner] = tokens_of(layer.tokens, split);
  const std::int64_t carried = tokens_of(layer.carried_tokens, split).inner;
  // The matrix of patches is whole on every device, which has those of its own tokens (and an empty
  // one for the class token).
  std::int64_t total =
      layer.patch_inputs > 0 ? narrow * layer.patch_inputs * bytes : (inner + carried) * kIndex;
  if (layer.embedding_norm) total += narrow * norm;  // its input and statistics
  return total;
}

// Elements that a block's backward by input leaves to the one by weights: what went into every
// matrix, and the gradient of what came out.
std::int64_t block_deferred(const LayerShape& layer, const Split& split) {
  const auto [narrow, wide, inner] = tokens_of(layer.tokens, split);
  const std::int64_t ways = split.matrices ? split.tensor * split.square : 1;
  const std::int64_t h = per_rank(layer.hidden, split.square);
  const std::int64_t seen = narrow * h, output = inner * h;
  const std::int64_t q = per_rank(layer.heads, ways) * layer.head_dim;
  const std::int64_t kv = 2 * per_rank(layer.kv_heads, ways) * layer.head_dim;
  const std::int64_t attended =
      wide * per_rank(layer.heads, split.tensor * split.square) * layer.head_dim;
  std::int64_t elements = 0;
  if (layer.attention != AttentionKind::none)
    elements += seen + inner * (q + kv) + attended + output;
  if (layer.cross_tokens > 0)
    elements +=
        seen + inner * q + tokens_of(layer.cross_tokens, split).inner * kv + attended + output;
  if (layer.ffn > 0) {
    const std::int64_t columns =
        copies(layer) * per_rank(layer.ffn, ways) + per_rank(layer.shared_ffn, ways);
    elements += seen + inner * (pre_activations(layer) + 1) * columns + copies(layer) * output;
    // A mixture's router sees the norm's output, its experts see what was permuted.
    if (layer.experts > 0) elements += narrow * (copies(layer) * h + layer.experts);
  }
  return elements;
}

std::int64_t embedding_deferred(const LayerShape& layer, std::int64_t bytes, const Split& split) {
  const auto [narrow, wide, inner] = tokens_of(layer.tokens, split);
  const Tokens carried = tokens_of(layer.carried_tokens, split);
  const std::int64_t read = layer.patch_inputs > 0 ? narrow * layer.patch_inputs * bytes
                                                   : (inner + carried.inner) * kIndex;
  return read + (narrow + carried.narrow) * layer.hidden * bytes;
}

// Without a norm only the gradient of the input is left: the loss has been taken back through the
// matrix at once.
std::int64_t head_saved(const LayerShape& layer, std::int64_t bytes, const Split& split) {
  const std::int64_t x = layer.hidden * bytes;
  // A class token and its gradient, on the device that has it.
  if (layer.class_token) return 2 * x + (layer.final_norm ? statistics(layer.norm) : 0);
  const std::int64_t narrow = tokens_of(layer.tokens, split).narrow;
  std::int64_t total = layer.pooled ? x : narrow * x;  // the mean's gradient, or every token's
  if (layer.final_norm) total += narrow * (x + statistics(layer.norm));
  // Dense output, activation and norm output of BERT's transform.
  if (layer.head_dense > 0)
    total += tokens_of(predictions(layer), split).narrow *
             (3 * layer.head_dense * bytes + statistics(layer.norm));
  return total;
}

// Elements read and written: a norm 2h, a residual add 3h (two reads, one write), rotary and head
// norms twice q and k, an activation its pre-activations and its output.
std::int64_t block_traffic(const LayerShape& layer, std::int64_t bytes) {
  constexpr std::int64_t kNormAndResidual = 2 + 3;
  const std::int64_t qk = (layer.heads + layer.kv_heads) * layer.head_dim;
  std::int64_t elements = 0;
  if (layer.attention != AttentionKind::none) {
    elements += kNormAndResidual * layer.hidden;
    if (layer.rotary) elements += 2 * qk;
    if (layer.qk_norm) elements += 2 * qk;
  }
  if (layer.cross_tokens > 0) elements += kNormAndResidual * layer.hidden;
  if (layer.final_norm) elements += 2 * layer.hidden;
  if (layer.ffn > 0) {
    elements += kNormAndResidual * layer.hidden;
    elements += (pre_activations(layer) + 1) * active_ffn(layer);
  }
  std::int64_t router = 0;
  if (layer.experts > 0) {
    elements += 2 * (1 + copies(layer)) * layer.hidden;  // permute there and back
    router = 2 * layer.experts * kFp32;                  // softmax
  }
  return layer.tokens * (elements * bytes + router);
}

// Every table gives one read, the sum one write.
std::int64_t embedding_traffic(const LayerShape& layer, std::int64_t bytes) {
  std::int64_t rows = 2;
  if (layer.positions > 0) ++rows;
  if (layer.token_types > 0) ++rows;
  if (layer.embedding_norm) rows += 2;
  return (layer.tokens + layer.carried_tokens) * rows * layer.hidden * bytes;
}

std::int64_t head_traffic(const LayerShape& layer, std::int64_t bytes) {
  // Logits read, fp32 softmax written.
  std::int64_t total = predictions(layer) * layer.vocab * (bytes + kFp32);
  if (layer.final_norm) total += layer.tokens * 2 * layer.hidden * bytes;
  if (layer.pooled) total += (layer.tokens + 1) * layer.hidden * bytes;
  if (layer.head_dense > 0) total += predictions(layer) * (2 + 2) * layer.head_dense * bytes;
  return total;
}

}  // namespace

Bytes forward_traffic(const LayerShape& layer, Precision precision) {
  const std::int64_t bytes = bytes_of(precision);
  switch (layer.kind) {
    case LayerKind::embedding:
      return Bytes(embedding_traffic(layer, bytes));
    case LayerKind::block:
      return Bytes(block_traffic(layer, bytes));
    case LayerKind::merge:  // gather four neighbours, then the norm: each reads and writes all
      return Bytes(4 * layer.tokens * layer.hidden * bytes);
    case LayerKind::head:
      return Bytes(head_traffic(layer, bytes));
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

Bytes saved_bytes(const LayerShape& layer, Recompute recompute, Precision precision,
                  const Split& split) {
  const std::int64_t bytes = bytes_of(precision);
  switch (layer.kind) {
    case LayerKind::embedding:
      return Bytes(embedding_saved(layer, bytes, split));
    case LayerKind::head:
      return Bytes(head_saved(layer, bytes, split));
    case LayerKind::merge: {
      // Four tokens side by side; the norm's output is made again, always.
      const std::int64_t merged = tokens_of(tokens_behind(layer), split).narrow;
      const std::int64_t input = merged * 4 * layer.hidden * bytes;
      if (recompute == Recompute::full) return Bytes(input);
      return Bytes(input + merged * statistics(layer.norm));
    }
    case LayerKind::block:
      break;
  }
  const BlockBytes kept = block_bytes(layer, bytes, split);
  switch (recompute) {
    case Recompute::none:
      return Bytes(kept.kept());
    case Recompute::selective:
      return Bytes(kept.input + kept.remaining);
    case Recompute::full:
      return Bytes(kept.input);
  }
  internal_failure("unknown recomputation", std::source_location::current());
}

Bytes deferred_bytes(const LayerShape& layer, Precision precision, const Split& split) {
  const std::int64_t bytes = bytes_of(precision);
  switch (layer.kind) {
    case LayerKind::embedding:
      return Bytes(embedding_deferred(layer, bytes, split));
    case LayerKind::head:  // of BERT's transform: its input, and the gradient of what it makes of
                           // it
      if (layer.head_dense == 0) return Bytes();
      return Bytes(tokens_of(predictions(layer), split).narrow * (layer.hidden + layer.head_dense) *
                   bytes);
    case LayerKind::merge: {
      const std::int64_t ways = split.matrices ? split.tensor * split.square : 1;
      const Tokens merged = tokens_of(tokens_behind(layer), split);
      return Bytes(
          (merged.inner * per_rank(layer.merge_outputs, ways) + merged.narrow * 4 * layer.hidden) *
          bytes);
    }
    case LayerKind::block:
      return Bytes(block_deferred(layer, split) * bytes);
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

Bytes deferred_beside_bytes(const LayerShape& layer, Precision precision, const Split& split) {
  if (layer.kind != LayerKind::block || layer.ffn == 0) return Bytes();
  const std::int64_t ways = split.matrices ? split.tensor * split.square : 1;
  const std::int64_t columns =
      copies(layer) * per_rank(layer.ffn, ways) + per_rank(layer.shared_ffn, ways);
  const std::int64_t output = per_rank(layer.hidden, split.square);
  return Bytes(tokens_of(layer.tokens, split).inner * (columns + output) * bytes_of(precision));
}

int deferred_gathers(const LayerShape& layer, const Split& split) {
  if (layer.kind != LayerKind::block || split.tensor == 1 || !split.matrices) return 0;
  return (layer.attention != AttentionKind::none ? 1 : 0) + (layer.cross_tokens > 0 ? 1 : 0) +
         (layer.ffn > 0 && layer.experts == 0 ? 1 : 0);
}

Bytes table_bytes(const LayerShape& layer, const Split& split) {
  if (layer.kind != LayerKind::block || !layer.rotary) return Bytes();
  return Bytes(tokens_of(layer.tokens, split).inner * layer.head_dim * kFp32);
}

Bytes transient_bytes(const LayerShape& layer, Recompute recompute, Precision precision) {
  const std::int64_t bytes = bytes_of(precision);
  const std::int64_t width = layer.tokens * layer.hidden * bytes;
  // What is recomputed is whole again while its gradients are made.
  const Bytes rematerialised =
      saved_bytes(layer, Recompute::none, precision) - saved_bytes(layer, recompute, precision);
  switch (layer.kind) {
    case LayerKind::embedding:  // the gradient of a norm's input; table gradients are not transient
      return Bytes(layer.embedding_norm ? width : 0);
    case LayerKind::block:
      return rematerialised + Bytes(live_gradients(layer, bytes));
    case LayerKind::merge:  // gradients of the norm's input and output
      return rematerialised + Bytes(2 * width);
    case LayerKind::head:  // logits, which their gradient overwrites
      return Bytes(predictions(layer) * layer.vocab * bytes);
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

std::int64_t rows_of_logits(std::int64_t rows, std::int64_t bytes_of_row) {
  if (rows * bytes_of_row <= kFewLogits) return rows;
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t most = std::max<std::int64_t>(1, kLogitsAtOnce / bytes_of_row / kRowsStep);
  const std::int64_t parts = std::max<std::int64_t>(2, ceil_div(rows, most * kRowsStep));
  return ceil_div(ceil_div(rows, parts), kRowsStep) * kRowsStep;
}

Bytes boundary_bytes(const LayerShape& layer, Precision precision) {
  const std::int64_t bytes = bytes_of(precision);
  switch (layer.kind) {
    case LayerKind::embedding:
    case LayerKind::block:
      return Bytes((layer.tokens + layer.cross_tokens + layer.carried_tokens) * layer.hidden *
                   bytes);
    case LayerKind::merge:
      return Bytes(tokens_behind(layer) * width_behind(layer) * bytes);
    case LayerKind::head:
      return Bytes(0);  // the loss stays where it is
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

}  // namespace braid
