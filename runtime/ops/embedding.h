#pragma once
// Rows of a table, of which this rank may hold a part.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace braid::ops {

// table [rows, width] holds the ids from `first` on; an id outside it gives zeros. ids [..] int64.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, std::int64_t first = 0);
// gradient [rows, width] += dy at each id it holds but `skipped`, in a fixed order.
void add_embedding_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& ids,
                            std::int64_t first = 0, std::int64_t skipped = -1);

}  // namespace braid::ops
