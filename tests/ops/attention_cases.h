#pragma once
// What the tests of attention share.

#include <ATen/ops/cat.h>

#include "runtime/ops/attention.h"
#include "tests/support/tensors.h"

namespace braid::ops {

inline constexpr double kScale = 0.3;

struct AttentionCase {
  const char* fact;
  std::int64_t queries, keys, heads, kv_heads, head_dim;
  Visibility see;
};
struct AttentionInputs {
  at::Tensor q, k, v, dout;
};
inline AttentionInputs inputs_of(const AttentionCase& c, at::ScalarType type, at::Device device) {
  const std::int64_t batch = 2;
  return {random_tensor({c.queries, batch, c.heads, c.head_dim}, 1, type, device),
          random_tensor({c.keys, batch, c.kv_heads, c.head_dim}, 2, type, device),
          random_tensor({c.keys, batch, c.kv_heads, c.head_dim}, 3, type, device),
          random_tensor({c.queries, batch, c.heads, c.head_dim}, 4, type, device)};
}

// The three as one vector: each may be exactly zero, where only rounding is left to compare.
inline at::Tensor together(const AttentionGradients& g) {
  return at::cat({g.dq.flatten(), g.dk.flatten(), g.dv.flatten()});
}

}  // namespace braid::ops
