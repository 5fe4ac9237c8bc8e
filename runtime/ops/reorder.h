#pragma once
// Rows of a tensor in another order.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace braid::ops {

// [n, ..] → [n, ..]: row i is the one that order[i] names. Contiguous.
inline at::Tensor reordered(const at::Tensor& x, const at::Tensor& order) {
  // Tensors without memory know no index_select.
  if (x.is_meta()) return at::empty(x.sizes(), x.options());
  return x.index_select(0, order);
}

}  // namespace braid::ops
