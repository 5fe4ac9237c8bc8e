#pragma once
// Sums over the rows of a matrix of floats.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

struct AddRows {
  const float* rows = nullptr;  // [num_rows, width]
  std::int64_t num_rows = 0, width = 0;
  float* out = nullptr;  // [width], added to
};
void add_rows(const AddRows& call, Stream stream);

}  // namespace braid::ops::kernels
