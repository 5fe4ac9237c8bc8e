#pragma once
// What stands between the two matrices of a feed-forward.

#include <ATen/core/Tensor.h>

#include "planner/model/layer.h"

namespace braid::ops {

// x [.., width], or [.., 2·width] with the gate's half first where the activation is gated.
at::Tensor activate(Activation activation, const at::Tensor& x);
// dx from dy [.., width].
at::Tensor activate_backward(Activation activation, const at::Tensor& dy, const at::Tensor& x);
// The same together with y, for a backward that has only x. Both may take the place of what they
// are made of: dx that of x, y that of dy.
struct ActivatedAgain {
  at::Tensor dx, y;
  at::Tensor rows;  // that add up to what those of dx do; few where wanted, if a kernel made them
};
ActivatedAgain activate_again(Activation activation, const at::Tensor& dy, const at::Tensor& x,
                              bool wants_few_rows = false);

}  // namespace braid::ops
