#include "runtime/ops/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "runtime/ops/fused.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Timed timed(kForwardProduct, {x.numel() / weight.size(1), weight.size(0), weight.size(1)});
  return at::linear(x, weight, bias);
}

at::Tensor linear_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias) {
  const Timed timed(kForwardProduct, {x.numel() / weight.size(1), weight.size(0), weight.size(1)});
  if (!residual.is_meta())
    if (auto y = fused::linear_onto(residual, rows_of(x), weight, bias)) return *y;
  at::Tensor y = ops::linear(x, weight);
  if (bias.defined()) y = y.add(bias);
  return residual.add(y);
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  const Timed timed(kInputProduct, {dy.numel() / weight.size(0), weight.size(0), weight.size(1)});
  return at::matmul(dy, weight);
}

void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (gradient.is_meta() || dy.is_meta()) return;
  const Timed timed(kWeightProduct,
                    {dy.numel() / gradient.size(0), gradient.size(0), gradient.size(1)});
  const at::Tensor left = rows_of(dy).t();
  const at::Tensor right = rows_of(x);
  const at::ScalarType precision = gradient.scalar_type();
  if (dy.scalar_type() == precision) {
    gradient.addmm_(left, right);
  } else if (fused::add_product(gradient, left.t(), right)) {
    return;
  } else if (gradient.is_cuda() && precision == at::kFloat) {
    // addmm wants its summand in the factors' type, so the product stands alone for a moment.
    gradient.add_(at::mm(left, right, precision));
  } else {
    gradient.addmm_(left.to(precision), right.to(precision));
  }
}

void add_bias_gradient(const at::Tensor& gradient, const at::Tensor& dy) {
  if (gradient.is_meta() || dy.is_meta()) return;
  const Timed timed("bias gradient");
  if (fused::column_sum(gradient, dy)) return;
  gradient.add_(at::sum(rows_of(dy), {0}, /*keepdim=*/false, gradient.scalar_type()));
}

}  // namespace braid::ops
