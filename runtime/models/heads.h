#pragma once
// Heads side by side, or as a dim of their own: [tokens, samples, heads · d] ↔ [tokens, samples,
// heads, d].

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace braid::models {

inline at::Tensor by_head(const at::Tensor& x, std::int64_t head_dim) {
  return x.unflatten(2, {x.size(2) / head_dim, head_dim});
}
inline at::Tensor flat(const at::Tensor& x) { return x.reshape({x.size(0), x.size(1), -1}); }

}  // namespace braid::models
