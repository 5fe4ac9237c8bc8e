#pragma once
// Norms of activations whose hidden width is cut among the columns of a square: a row's ranks add
// up what they know of a token. Results and statistics are those of runtime/ops/norm.h.

#include <ATen/core/Tensor.h>

#include "runtime/ops/norm.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

// x [.., hidden / q], weight and bias with this rank's part of the width.
ops::LayerNorm square_layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, double epsilon, const Site& site);
ops::NormGradients square_layer_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                              const at::Tensor& statistics,
                                              const at::Tensor& weight, const Site& site);

ops::RmsNorm square_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                             const Site& site);
ops::NormGradients square_rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                            const at::Tensor& statistics, const at::Tensor& weight,
                                            const Site& site);

}  // namespace braid::parallel
