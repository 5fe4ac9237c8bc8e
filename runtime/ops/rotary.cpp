#include "runtime/ops/rotary.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>

#include "planner/core/error.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/precision.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

// A rotation of the pairs (left, right) by the table's angles, or back by them for direction -1.
at::Tensor turned(const at::Tensor& x, const RotaryTable& table, double direction) {
  internal_check(x.size(-1) % 2 == 0, "heads that are turned have an even width");
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

at::Tensor rotary(const at::Tensor& x, const RotaryTable& table) {
  const Timed timed("rotary");
  return turned(x, table, 1.0);
}

at::Tensor rotary_backward(const at::Tensor& dy, const RotaryTable& table) {
  const Timed timed("rotary, gradient");
  return turned(dy, table, -1.0);
}

QkvHeads rotary_heads(const at::Tensor& qkv, std::int64_t q_heads, std::int64_t head_dim,
                      const RotaryTable& table) {
  const Timed timed("rotary");
  const at::Tensor heads = qkv.unflatten(2, {qkv.size(2) / head_dim, head_dim});
  const std::int64_t kv_heads = (heads.size(2) - q_heads) / 2;
  const at::Tensor q = heads.narrow(2, 0, q_heads);
  const at::Tensor k = heads.narrow(2, q_heads, kv_heads);
  const at::Tensor v = heads.narrow(2, q_heads + kv_heads, kv_heads);
  if (fused::rotary_in_place(heads, {q_heads, kv_heads}, table)) return {q, k, v};
  // A dense v lets go of the storage that it shared with q and k.
  return {rotary(q, table), rotary(k, table), v.contiguous()};
}

namespace {

at::Tensor side_by_side(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto flat = [](const at::Tensor& x) { return x.reshape({x.size(0), x.size(1), -1}); };
  return at::cat({flat(q), flat(k), flat(v)}, 2);
}

}  // namespace

PackedGradient heads_backward(const QkvHeads& gradients, const RotaryTable* table,
                              bool wants_few_rows) {
  const Timed timed(table != nullptr ? "rotary, gradient" : "heads, gradient");
  if (auto packed = fused::packed_heads(gradients, table, wants_few_rows)) return *packed;
  const auto& [dq, dk, dv] = gradients;
  const at::Tensor dqkv =
      table != nullptr ? side_by_side(rotary_backward(dq, *table), rotary_backward(dk, *table), dv)
                       : side_by_side(dq, dk, dv);
  return {dqkv, dqkv};
}

}  // namespace braid::ops
