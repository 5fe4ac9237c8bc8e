#pragma once
// A mixture of experts' router: softmax over all experts, the best few, their weights made to sum
// to one.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace braid::ops {

struct Routed {
  at::Tensor probabilities;  // [rows, experts], fp32 (fp64 for fp64)
  at::Tensor chosen;         // [rows, per_token] int64, best first; ties go to the lower expert
  at::Tensor weights;        // [rows, per_token], as the probabilities
};
Routed route(const at::Tensor& logits, std::int64_t per_token);
// The weights of chosen experts, again from the probabilities.
at::Tensor routed_weights(const at::Tensor& probabilities, const at::Tensor& chosen);
// Gradient of the logits [rows, experts] (in the probabilities' precision) from that of the
// weights.
at::Tensor route_backward(const at::Tensor& dweights, const at::Tensor& probabilities,
                          const at::Tensor& chosen);

}  // namespace braid::ops
