#pragma once
// Rotary position embedding in Hugging Face's layout: the halves of a head form the pairs.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace braid::ops {

// cos and sin, each [tokens, head_dim / 2], of the given angles (positions [tokens] times
// frequencies [head_dim / 2]), made in fp32 (fp64 for fp64) and kept there.
struct RotaryTable {
  at::Tensor cos, sin;
};
RotaryTable rotary_table(const at::Tensor& positions, const at::Tensor& frequencies,
                         at::ScalarType compute);

// x [tokens, batch, heads, head_dim] turned by its token's angle; computed in the table's
// precision, returned in x's.
at::Tensor rotary(const at::Tensor& x, const RotaryTable& table);
// The gradient turns back.
at::Tensor rotary_backward(const at::Tensor& dy, const RotaryTable& table);

// What one product made: qkv [tokens, batch, heads · head_dim], q's heads first, then k's, then
// v's.
struct QkvHeads {
  at::Tensor q, k, v;  // [tokens, batch, heads, head_dim]; they may share one storage
};
// q and k turned. `qkv` may be overwritten.
QkvHeads rotary_heads(const at::Tensor& qkv, std::int64_t q_heads, std::int64_t head_dim,
                      const RotaryTable& table);
// The gradient of what the product made; turned back where the heads were turned by `table`.
struct PackedGradient {
  at::Tensor dqkv;
  at::Tensor rows;  // that add up to what those of dqkv do; few where wanted, if a kernel made them
};
PackedGradient heads_backward(const QkvHeads& gradients, const RotaryTable* table,
                              bool wants_few_rows = false);

}  // namespace braid::ops
