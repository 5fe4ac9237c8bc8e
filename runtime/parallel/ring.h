#pragma once
// Attention over a ring of ranks that share the sequence: keys and values travel, queries stay. The
// next block is on its way while the present one is at work.

#include <ATen/core/Tensor.h>

#include "runtime/ops/attention.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

// What is added to scores: ops::Visibility has the same.
struct ScoreBias {
  at::Tensor slopes = {};   // of this rank's heads
  at::Tensor lengths = {};  // of its samples
  at::Tensor by_distance = {}, distance_gradient = {};
};

// Everything in head layout: q [wide tokens, samples, heads, head_dim], k and v with theirs.
ops::Attended ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             double scale, const Site& site, const ScoreBias& bias = {});
ops::AttentionGradients ring_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const at::Tensor& out, const at::Tensor& lse,
                                                double scale, const Site& site,
                                                const ScoreBias& bias = {});

}  // namespace braid::parallel
