#pragma once
// What tensor parallelism moves inside a layer. A rank holds its narrow tokens between layers;
// megatron gathers them ahead of a cut matrix and scatters the sum behind one, Ulysses exchanges
// tokens for heads around attention. Every function is its own inverse's gradient: gather and
// scatter_sum, to_heads and to_tokens.

#include <ATen/core/Tensor.h>

#include "runtime/parallel/site.h"

namespace braid::parallel {

// [narrow, ..] → [wide, ..] under megatron and between squares; as it is otherwise.
at::Tensor gather_tokens(const at::Tensor& x, const Site& site);
// [wide, ..] summands of all ranks → their sum's [narrow, ..].
at::Tensor scatter_sum(const at::Tensor& x, const Site& site);

// Under Ulysses [narrow, samples, heads, d] ↔ [wide, samples, heads / tp, d]; as it is otherwise.
at::Tensor to_heads(const at::Tensor& x, const Site& site);
at::Tensor to_tokens(const at::Tensor& x, const Site& site);

}  // namespace braid::parallel
