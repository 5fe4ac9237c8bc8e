#include "runtime/ops/rotary.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>

#include "runtime/ops/precision.h"

namespace braid::ops {

namespace {

// A rotation of the pairs (left, right) by the table's angles, or back by them for direction -1.
at::Tensor turned(const at::Tensor& x, const RotaryTable& table, double direction) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor cos = table.cos.unsqueeze(1).unsqueeze(1);
  const at::Tensor sin = table.sin.unsqueeze(1).unsqueeze(1);
  const at::Tensor left = x.narrow(-1, 0, half);
  const at::Tensor right = x.narrow(-1, half, half);
  at::Tensor y = at::empty_like(x, x.options(), at::MemoryFormat::Contiguous);
  at::Tensor y_left = y.narrow(-1, 0, half);
  at::Tensor y_right = y.narrow(-1, half, half);
  at::addcmul_out(y_left, at::mul(left, cos), right, sin, -direction);
  at::addcmul_out(y_right, at::mul(right, cos), left, sin, direction);
  return y;
}

}  // namespace

RotaryTable rotary_table(const at::Tensor& positions, const at::Tensor& frequencies,
                         at::ScalarType compute) {
  const at::ScalarType precision = wide(compute);
  const at::Tensor angles =
      at::mul(positions.to(precision).unsqueeze(1), frequencies.to(precision).unsqueeze(0));
  return {at::cos(angles), at::sin(angles)};
}

at::Tensor rotary(const at::Tensor& x, const RotaryTable& table) { return turned(x, table, 1.0); }

at::Tensor rotary_backward(const at::Tensor& dy, const RotaryTable& table) {
  return turned(dy, table, -1.0);
}

}  // namespace braid::ops
