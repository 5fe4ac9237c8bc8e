#pragma once
// What the files of fused.h share.

#include <fmt/core.h>

#include <initializer_list>
#include <string>

#include "runtime/ops/device.h"
#include "runtime/ops/fallback.h"
#include "runtime/ops/fused.h"

namespace braid::ops::fused {

inline bool is_known(at::ScalarType type) { return type == at::kBFloat16 || type == at::kFloat; }

inline kernels::Type type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Type::bf16 : kernels::Type::fp32;
}

// Null for a tensor that is not there.
inline void* memory(const at::Tensor& x) { return x.defined() ? x.data_ptr() : nullptr; }
inline float* floats(const at::Tensor& x) { return static_cast<float*>(memory(x)); }

inline kernels::Stream stream_of(const at::Tensor& x) { return current_stream(x.device()); }

// Whether all that are defined are dense and of one type that the kernels know; notes why not.
bool takes(const char* operation, std::initializer_list<const at::Tensor*> tensors);
// The same for fp32 tensors.
bool takes_floats(const char* operation, std::initializer_list<const at::Tensor*> tensors);

inline std::int64_t rows_of(const at::Tensor& x) {
  return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
}

}  // namespace braid::ops::fused
