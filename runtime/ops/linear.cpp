#include "runtime/ops/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "runtime/ops/fused.h"

namespace braid::ops {

namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias);
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  return at::matmul(dy, weight);
}

void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (gradient.is_meta() || dy.is_meta()) return;
  const at::Tensor left = rows_of(dy).t();
  const at::Tensor right = rows_of(x);
  const at::ScalarType precision = gradient.scalar_type();
  if (dy.scalar_type() == precision) {
    gradient.addmm_(left, right);
  } else if (gradient.is_cuda() && precision == at::kFloat) {
    // addmm wants its summand in the factors' type, so the product stands alone for a moment.
    gradient.add_(at::mm(left, right, precision));
  } else {
    gradient.addmm_(left.to(precision), right.to(precision));
  }
}

void add_bias_gradient(const at::Tensor& gradient, const at::Tensor& dy) {
  if (gradient.is_meta() || dy.is_meta()) return;
  if (fused::column_sum(gradient, dy)) return;
  gradient.add_(at::sum(rows_of(dy), {0}, /*keepdim=*/false, gradient.scalar_type()));
}

}  // namespace braid::ops
