#pragma once
// Matrix products through cuBLASLt: sums in fp32, and what stands around a product in the product's
// own pass.

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/ops/cuda/kernels.h"

namespace braid::ops::kernels {

// A matrix of bf16, or of 8 bits and a scale, as it lies in memory, rows one after the other.
// cuBLASLt takes 8 bits only where neighbours in memory are those that are summed over.
enum class Element { bf16, e4m3, e5m2 };
struct Factor {
  const void* memory = nullptr;
  std::int64_t stride = 0;  // from row to row, in elements
  bool turned = false;      // takes part with rows and columns exchanged
  Element element = Element::bf16;
  const float* scale = nullptr;  // of 8 bits, on the device
};

// out [rows, columns] = left [rows, inner] · right [inner, columns] + added + bias
struct Gemm {
  Factor left, right;
  std::int64_t rows = 0, columns = 0, inner = 0;
  Type out_type = Type::bf16;
  void* out = nullptr;          // dense
  const void* added = nullptr;  // [rows, columns] in out_type, dense; may be `out`; null: none
  const void* bias = nullptr;   // [columns] bf16, for a bf16 `out`; null: none
  // As many products of one right factor, whose other matrices lie so far apart, in elements.
  std::int64_t groups = 1, left_group = 0, out_group = 0;
  bool loose = false;  // its blocks need no more than a pair of processors at the same moment
  bool rough = false;  // 8 bits: partial sums may round to fewer bits than fp32's
  void* workspace = nullptr;       // of the device
  std::size_t workspace_size = 0;  // bytes
};
// Why it could not be done; empty: it is under way.
std::string gemm(const Gemm& call, Stream stream);

}  // namespace braid::ops::kernels
