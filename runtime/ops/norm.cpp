#include "runtime/ops/norm.h"

#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/sum.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/ops/fused.h"
#include "runtime/ops/precision.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

at::Tensor empty_statistics(const at::Tensor& x, std::int64_t per_row) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = per_row;
  return at::empty(sizes, x.options().dtype(wide(x.scalar_type())));
}

// The CPU's LayerNorm keeps its statistics in the weight's type, the GPU's wants the weight in x's.
at::Tensor as_kernel_wants(const at::Tensor& parameter, const at::Tensor& x) {
  if (!parameter.defined() || !x.is_cpu()) return parameter;
  return parameter.to(wide(x.scalar_type()));
}

at::Tensor with_residual(const at::Tensor& dx, const at::Tensor& residual) {
  return residual.defined() ? dx.add_(residual) : dx;
}

// y from what forward kept of a row: 1/rms, or mean and 1/sigma.
void write_again(const BesideNorm& beside, const at::Tensor& x, const at::Tensor& statistics,
                 const at::Tensor& weight) {
  if (!beside.again.defined()) return;
  at::Tensor exact = x.to(wide(x.scalar_type()));
  if (statistics.size(-1) == 2) exact = exact.sub(statistics.narrow(-1, 0, 1));
  at::Tensor y = at::mul(exact, statistics.narrow(-1, statistics.size(-1) - 1, 1));
  if (statistics.size(-1) == 1) y = y.to(x.scalar_type());  // as forward rounds
  y = at::mul(y, weight);
  if (beside.bias.defined()) y = y.add(beside.bias);
  beside.again.copy_(y);
}

}  // namespace

LayerNorm layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon) {
  if (x.is_meta()) return {at::empty(x.sizes(), x.options()), empty_statistics(x, 2)};
  const Timed timed("norm");
  if (auto normed = fused::norm(fused::NormKind::layer, x, {}, weight, bias, epsilon))
    return {std::move(normed->y), std::move(normed->statistics)};
  auto [y, mean, inverse_sigma] =
      at::native_layer_norm(x, x.sizes().slice(static_cast<std::size_t>(x.dim() - 1)),
                            as_kernel_wants(weight, x), as_kernel_wants(bias, x), epsilon);
  return {std::move(y), at::cat({mean, inverse_sigma}, -1)};
}

NormGradients layer_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                  const at::Tensor& statistics, const at::Tensor& weight,
                                  const BesideNorm& beside) {
  if (x.is_meta())
    return {at::empty(x.sizes(), x.options()), at::empty({2 * x.size(-1)}, statistics.options())};
  const Timed timed("norm, gradient");
  if (auto gradients =
          fused::norm_backward(fused::NormKind::layer, dy, x, statistics, weight, beside))
    return *gradients;
  const at::Tensor mean = statistics.narrow(-1, 0, 1).contiguous();
  const at::Tensor inverse_sigma = statistics.narrow(-1, 1, 1).contiguous();
  const at::Tensor scale = as_kernel_wants(weight, x);
  // The kernel learns from a bias only that its gradient has the weight's shape.
  auto [dx, dweight, dbias] =
      at::native_layer_norm_backward(dy, x, x.sizes().slice(static_cast<std::size_t>(x.dim() - 1)),
                                     mean, inverse_sigma, scale, scale, {true, true, true});
  write_again(beside, x, statistics, weight);
  return {with_residual(dx, beside.residual),
          at::cat({dweight, dbias}, 0).to(statistics.scalar_type())};
}

RmsNorm rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (x.is_meta()) return {at::empty(x.sizes(), x.options()), empty_statistics(x, 1)};
  const Timed timed("norm");
  if (auto normed = fused::norm(fused::NormKind::rms, x, {}, weight, {}, epsilon))
    return {std::move(normed->y), std::move(normed->statistics)};
  if (x.is_cuda()) {
    auto [y, inverse_rms] = at::_fused_rms_norm(x, {x.size(-1)}, weight, epsilon);
    return {std::move(y), std::move(inverse_rms)};
  }
  const at::Tensor exact = x.to(wide(x.scalar_type()));
  at::Tensor inverse_rms =
      at::mean(at::mul(exact, exact), at::IntArrayRef{-1}, /*keepdim=*/true).add_(epsilon).rsqrt_();
  at::Tensor y = at::mul(exact, inverse_rms).to(x.scalar_type()).mul_(weight);
  return {std::move(y), std::move(inverse_rms)};
}

NormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                const at::Tensor& statistics, const at::Tensor& weight,
                                const BesideNorm& beside) {
  if (x.is_meta())
    return {at::empty(x.sizes(), x.options()), at::empty({x.size(-1)}, statistics.options())};
  const Timed timed("norm, gradient");
  if (auto gradients =
          fused::norm_backward(fused::NormKind::rms, dy, x, statistics, weight, beside))
    return *gradients;
  if (x.is_cuda()) {
    auto [dx, dweight] =
        at::_fused_rms_norm_backward(dy, x, {x.size(-1)}, statistics, weight, {true, true});
    write_again(beside, x, statistics, weight);
    return {with_residual(dx, beside.residual), dweight.to(statistics.scalar_type())};
  }
  // dx = (g - n·mean(g·n)) / rms with g = dy·weight and n the normalised value.
  const at::ScalarType precision = wide(x.scalar_type());
  at::Tensor normalised = at::mul(x.to(precision), statistics);
  at::Tensor product = at::mul(dy, normalised);
  at::Tensor dweight = at::sum(product.reshape({-1, x.size(-1)}), at::IntArrayRef{0});
  const at::Tensor along = at::mean(product.mul_(weight), at::IntArrayRef{-1}, /*keepdim=*/true);
  at::Tensor dx = at::mul(dy, weight.to(precision));
  dx = dx.sub_(normalised.mul_(along)).mul_(statistics).to(x.scalar_type());
  write_again(beside, x, statistics, weight);
  return {with_residual(dx, beside.residual), std::move(dweight)};
}

}  // namespace braid::ops
