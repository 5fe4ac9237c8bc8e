#include "runtime/ops/activation.h"

#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <optional>
#include <source_location>
#include <utility>

#include "planner/core/error.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

// What is applied to each value, or to each value of the gate.
enum class Curve { gelu, gelu_tanh, relu, silu };

Curve curve_of(Activation activation) {
  switch (activation) {
    case Activation::gelu:
    case Activation::geglu:
      return Curve::gelu;
    case Activation::gelu_tanh:
    case Activation::geglu_tanh:
      return Curve::gelu_tanh;
    case Activation::relu:
      return Curve::relu;
    case Activation::swiglu:
      return Curve::silu;
  }
  internal_failure("an activation without a curve", std::source_location::current());
}

std::optional<kernels::Curve> kernel_curve(Curve curve) {
  switch (curve) {
    case Curve::gelu:
      return kernels::Curve::gelu;
    case Curve::gelu_tanh:
      return kernels::Curve::gelu_tanh;
    case Curve::relu:
      return std::nullopt;
    case Curve::silu:
      return kernels::Curve::silu;
  }
  internal_failure("an unknown curve", std::source_location::current());
}

at::Tensor apply(Curve curve, const at::Tensor& x) {
  switch (curve) {
    case Curve::gelu:
      return at::gelu(x, "none");
    case Curve::gelu_tanh:
      return at::gelu(x, "tanh");
    case Curve::relu:
      return at::clamp_min(x, 0);  // at::relu has no meta kernel
    case Curve::silu:
      return at::silu(x);
  }
  internal_failure("an unknown curve", std::source_location::current());
}

// dx = dy · curve'(x).
void apply_backward(Curve curve, const at::Tensor& dy, const at::Tensor& x, at::Tensor& dx) {
  switch (curve) {
    case Curve::gelu:
      at::gelu_backward_out(dx, dy, x, "none");
      return;
    case Curve::gelu_tanh:
      at::gelu_backward_out(dx, dy, x, "tanh");
      return;
    case Curve::relu:
      at::threshold_backward_out(dx, dy, x, 0);
      return;
    case Curve::silu:
      at::silu_backward_out(dx, dy, x);
      return;
  }
}

}  // namespace

at::Tensor activate(Activation activation, const at::Tensor& x) {
  const Timed timed("activation");
  const Curve curve = curve_of(activation);
  if (const auto kernel = kernel_curve(curve))
    if (auto y = fused::activate(*kernel, is_gated(activation), x)) return *y;
  if (!is_gated(activation)) return apply(curve, x);
  const std::int64_t width = x.size(-1) / 2;
  return apply(curve, x.narrow(-1, 0, width)).mul_(x.narrow(-1, width, width));
}

at::Tensor activate_backward(Activation activation, const at::Tensor& dy, const at::Tensor& x) {
  const Timed timed("activation, gradient");
  const Curve curve = curve_of(activation);
  if (const auto kernel = kernel_curve(curve))
    if (auto dx = fused::activate_backward(*kernel, is_gated(activation), dy, x)) return *dx;
  at::Tensor dx = at::empty_like(x, x.options(), at::MemoryFormat::Contiguous);
  if (!is_gated(activation)) {
    apply_backward(curve, dy, x, dx);
    return dx;
  }
  const std::int64_t width = x.size(-1) / 2;
  const at::Tensor gate = x.narrow(-1, 0, width);
  at::Tensor dgate = dx.narrow(-1, 0, width);
  at::Tensor dup = dx.narrow(-1, width, width);
  apply_backward(curve, at::mul(dy, x.narrow(-1, width, width)), gate, dgate);
  at::mul_out(dup, dy, apply(curve, gate));
  return dx;
}

ActivatedAgain activate_again(Activation activation, const at::Tensor& dy, const at::Tensor& x,
                              bool wants_few_rows) {
  const Timed timed("activation, gradient");
  if (const auto kernel = kernel_curve(curve_of(activation)))
    if (auto again = fused::activate_again(*kernel, is_gated(activation), dy, x, wants_few_rows))
      return *again;
  const at::Tensor dx = activate_backward(activation, dy, x);
  return {dx, activate(activation, x), dx};
}

}  // namespace braid::ops
