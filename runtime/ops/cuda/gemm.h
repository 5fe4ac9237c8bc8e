#pragma once
// Matrix products through cuBLASLt: sums in fp32, and what stands around a product in the product's
// own pass.

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/ops/cuda/kernels.h"

namespace braid::ops::kernels {

// A bf16 matrix as it lies in memory, rows one after the other.
struct Factor {
  const void* memory = nullptr;
  std::int64_t stride = 0;  // from row to row, in elements
  bool turned = false;      // takes part with rows and columns exchanged
};

// out [rows, columns] = left [rows, inner] · right [inner, columns] + added + bias
struct Gemm {
  Factor left, right;
  std::int64_t rows = 0, columns = 0, inner = 0;
  Type out_type = Type::bf16;
  void* out = nullptr;             // dense
  const void* added = nullptr;     // [rows, columns] in out_type, dense; may be `out`; null: none
  const void* bias = nullptr;      // [columns] bf16, for a bf16 `out`; null: none
  void* workspace = nullptr;       // of the device
  std::size_t workspace_size = 0;  // bytes
};
// Why it could not be done; empty: it is under way.
std::string gemm(const Gemm& call, Stream stream);

}  // namespace braid::ops::kernels
