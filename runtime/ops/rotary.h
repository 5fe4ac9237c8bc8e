#pragma once
// Rotary position embedding in Hugging Face's layout: the halves of a head form the pairs.

#include <ATen/core/Tensor.h>

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

}  // namespace braid::ops
