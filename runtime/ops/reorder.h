#pragma once
// Rows of a tensor in another order, and sums of rows.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_put.h>

namespace braid::ops {

// [n, ..] → [n, ..]: row i is the one that order[i] names. Contiguous.
inline at::Tensor reordered(const at::Tensor& x, const at::Tensor& order) {
  // Tensors without memory know no index_select.
  if (x.is_meta()) return at::empty(x.sizes(), x.options());
  return x.index_select(0, order);
}

// Adds row i of `rows` to the row of `table` that index[i] names, in the same order every time: on
// a GPU index_add_ adds atomically, in any order, while index_put_ sorts by row first.
inline void add_rows(const at::Tensor& table, const at::Tensor& index, const at::Tensor& rows) {
  if (table.is_cuda()) {
    table.index_put_({index}, rows, /*accumulate=*/true);
  } else {
    table.index_add_(0, index, rows);
  }
}

}  // namespace braid::ops
