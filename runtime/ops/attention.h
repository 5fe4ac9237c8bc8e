#pragma once
// Softmax attention over ATen's flash kernels. A call sees one block of queries and one block of
// keys, each with the position of its first token, so that a ring can compose calls.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace braid::ops {

// Which keys a query sees, and what is added to their scores.
struct Visibility {
  bool causal = true;
  std::int64_t window = 0;       // a causal query sees itself and window - 1 before it; 0: all
  std::int64_t query_begin = 0;  // position of the first query
  std::int64_t key_begin = 0;    // position of the first key
  // Any of these takes the attention off the flash kernels: to one that reads what is added, or to
  // products with some scores in memory.
  at::Tensor slopes = {};   // [heads]: a score falls by so much a token of distance (ALiBi)
  at::Tensor lengths = {};  // [batch] int64: keys from that position on are padding, and hidden
  // [2 · reach - 1, heads]: a score grows by the row of its key's position less its query's, where
  // row reach - 1 is of no distance. Backward adds to the gradient, of the same shape in wide
  // precision.
  at::Tensor by_distance = {}, distance_gradient = {};
  // [queries, keys] int64: the rows of that table where they are others (offsets in two dims).
  at::Tensor pair_rows = {};
  // [groups, queries, keys]: added for the samples of each of as many equal groups in a row.
  at::Tensor by_group = {};
};

// Whether any query of a block of `queries` sees any key of a block of `keys`.
bool sees_any(const Visibility& see, std::int64_t queries, std::int64_t keys);

struct Attended {
  at::Tensor out;  // [queries, batch, heads, head_dim]
  at::Tensor lse;  // [batch, heads, queries], fp32 (fp64 for fp64): log of the softmax's sum
};
// q [queries, batch, heads, head_dim], k and v [keys, batch, kv_heads, head_dim]; kv_heads divides
// heads. A query that sees no key gets zeros and an lse of -inf.
Attended attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                   const Visibility& see);

struct AttentionGradients {
  at::Tensor dq, dk, dv;  // in the shapes of q, k, v
};
// `out` and `lse` may be those of all keys, of which k and v are one block: the block's share of
// the gradients comes out.
AttentionGradients attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& out, const at::Tensor& lse, double scale,
                                      const Visibility& see);

// The attention over two blocks of keys from the attention over each, in the precision of a's out
// (a ring keeps that in fp32). A side without keys changes no bit of the other.
Attended merge(const Attended& a, const Attended& b);

}  // namespace braid::ops
