#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "runtime/ops/fused_common.h"

namespace braid::ops::fused {

namespace {

kernels::Activate call_of(kernels::Curve curve, bool gated, const at::Tensor& x) {
  kernels::Activate call;
  call.type = type_of(x);
  call.curve = curve;
  call.gated = gated;
  call.x = memory(x);
  call.rows = rows_of(x);
  call.width = x.size(-1) / (gated ? 2 : 1);
  return call;
}

at::Tensor empty_result(const kernels::Activate& call, const at::Tensor& x) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = call.width;
  return at::empty(sizes, x.options());
}

}  // namespace

std::optional<at::Tensor> activate(kernels::Curve curve, bool gated, const at::Tensor& x) {
  if (!reaches(x) || !takes("activation", {&x})) return std::nullopt;
  kernels::Activate call = call_of(curve, gated, x);
  at::Tensor y = empty_result(call, x);
  call.y = memory(y);
  kernels::activate(call, stream_of(x));
  return y;
}

namespace {

kernels::ActivateBackward backward_of(kernels::Curve curve, bool gated, const at::Tensor& dy,
                                      const at::Tensor& x, const at::Tensor& dx) {
  kernels::ActivateBackward back;
  back.call = call_of(curve, gated, x);
  back.dy = memory(dy);
  back.dx = memory(dx);
  return back;
}

}  // namespace

std::optional<at::Tensor> activate_backward(kernels::Curve curve, bool gated, const at::Tensor& dy,
                                            const at::Tensor& x) {
  if (!reaches(x) || !takes("activation_backward", {&x, &dy})) return std::nullopt;
  at::Tensor dx = at::empty_like(x);
  kernels::activate_backward(backward_of(curve, gated, dy, x, dx), stream_of(x));
  return dx;
}

std::optional<ActivatedAgain> activate_again(kernels::Curve curve, bool gated, const at::Tensor& dy,
                                             const at::Tensor& x, bool wants_few_rows) {
  if (!reaches(x) || !takes("activation_backward", {&x, &dy})) return std::nullopt;
  kernels::ActivateBackward back = backward_of(curve, gated, dy, x, x);
  back.call.y = memory(dy);
  ActivatedAgain again{x, dy, x};
  if (wants_few_rows) {
    again.rows = at::empty({kernels::activate_partials(back.call), x.size(-1)},
                           x.options().dtype(at::kFloat));
    back.partials = floats(again.rows);
  }
  kernels::activate_backward(back, stream_of(x));
  return again;
}

}  // namespace braid::ops::fused
