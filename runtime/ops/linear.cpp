#include "runtime/ops/linear.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "runtime/ops/fp8.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/precision.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

void share_processors() { fused::share_processors(); }

RowGroups row_groups(const at::Tensor& out, const at::Tensor& in) {
  constexpr std::int64_t kGrouped = 4;  // dims
  const std::int64_t groups = out.dim() == kGrouped  ? out.size(0)
                              : in.dim() == kGrouped ? in.size(0)
                                                     : 1;
  return {out.view({groups, -1, out.size(-1)}), in.reshape({groups, -1, in.size(-1)})};
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Timed timed(kForwardProduct, {x.numel() / weight.size(1), weight.size(0), weight.size(1)});
  if (!x.is_meta())
    if (auto y = fused::linear(x, weight, bias)) return *y;
  if (Fp8Scope::on() && !x.is_meta()) {
    const at::Tensor y = at::linear(as_fp8(x, Fp8::e4m3), as_fp8(weight, Fp8::e4m3),
                                    bias.defined() ? bias.to(at::kFloat) : bias);
    return y.to(x.scalar_type());
  }
  return at::linear(x, weight, bias);
}

void linear_into(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight,
                 const at::Tensor& bias) {
  if (out.is_meta()) return;
  const Timed timed(kForwardProduct, {x.numel() / weight.size(1), weight.size(0), weight.size(1)});
  const RowGroups rows = row_groups(out, x);
  if (fused::linear_into(rows, weight, bias)) return;
  if (Fp8Scope::on()) {
    rows.out.copy_(linear(rows.in, weight, bias));
    return;
  }
  for (std::int64_t i = 0; i < rows.in.size(0); ++i) {
    at::Tensor to = rows.out[i];
    if (bias.defined())
      at::addmm_out(to, bias, rows.in[i], weight.t());
    else
      at::mm_out(to, rows.in[i], weight.t());
  }
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
  if (!dy.is_meta())
    if (auto dx = fused::linear_input_gradient(dy, weight)) return *dx;
  if (Fp8Scope::on() && !dy.is_meta())
    return at::matmul(as_fp8(dy, Fp8::e5m2), as_fp8(weight, Fp8::e4m3)).to(dy.scalar_type());
  return at::matmul(dy, weight);
}

void linear_input_gradient_into(const at::Tensor& out, const at::Tensor& dy,
                                const at::Tensor& weight) {
  if (out.is_meta()) return;
  const Timed timed(kInputProduct, {dy.numel() / weight.size(0), weight.size(0), weight.size(1)});
  const RowGroups rows = row_groups(out, dy);
  if (fused::linear_input_gradient_into(rows, weight)) return;
  if (Fp8Scope::on()) {
    rows.out.copy_(linear_input_gradient(rows.in, weight));
    return;
  }
  for (std::int64_t i = 0; i < rows.in.size(0); ++i) {
    at::Tensor to = rows.out[i];
    at::mm_out(to, rows.in[i], weight);
  }
}

void add_product(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  const at::ScalarType precision = sum.defined() ? sum.scalar_type() : wide(left.scalar_type());
  if (left.is_meta()) {
    if (!sum.defined())
      sum = at::empty({left.size(0), right.size(1)}, left.options().dtype(precision));
    return;
  }
  const bool same = left.scalar_type() == precision;
  if (!same && left.is_cuda()) {
    const bool fresh = !sum.defined();
    const at::Tensor target =
        fresh ? at::empty({left.size(0), right.size(1)}, left.options().dtype(precision)) : sum;
    if (fused::add_to({target, fresh}, left, right)) {
      sum = target;
      return;
    }
  }
  // addmm wants its summand in the factors' type, so that a wider product stands alone for a
  // moment.
  const bool alone = !same && left.is_cuda() && precision == at::kFloat;
  if (!sum.defined()) {
    sum = alone ? at::mm(left, right, precision) : at::mm(left.to(precision), right.to(precision));
  } else if (alone) {
    sum.add_(at::mm(left, right, precision));
  } else {
    sum.addmm_(left.to(precision), right.to(precision));
  }
}

at::Tensor last_product(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  add_product(sum, left, right);
  return sum.to(left.scalar_type());
}

void add_weight_gradient(const Sum& gradient, const at::Tensor& dy, const at::Tensor& x) {
  const at::Tensor& target = gradient.value;
  if (target.is_meta() || dy.is_meta()) return;
  const Timed timed(kWeightProduct, {dy.numel() / target.size(0), target.size(0), target.size(1)});
  const at::Tensor rows_dy = rows_of(dy), rows_x = rows_of(x);
  if (dy.scalar_type() == at::kBFloat16 && fused::add_product(gradient, rows_dy, rows_x)) return;
  if (gradient.fresh) target.zero_();
  at::Tensor sum = target;
  if (Fp8Scope::on())
    add_product(sum, as_fp8(rows_dy, Fp8::e5m2).t(), as_fp8(rows_x, Fp8::e4m3));
  else
    add_product(sum, rows_dy.t(), rows_x);
}

at::Tensor sum_of_rows(const at::Tensor& rows) {
  if (rows.dim() == 1) return rows;
  const Sum sum{at::empty({rows.size(-1)}, rows.options().dtype(wide(rows.scalar_type()))), true};
  add_rows(sum, rows);
  return sum.value;
}

void add_rows(const Sum& sum, const at::Tensor& rows) {
  const at::Tensor& target = sum.value;
  if (target.is_meta() || rows.is_meta()) return;
  const Timed timed("sums of rows");
  if (fused::column_sum(sum, rows)) return;
  if (sum.fresh) target.zero_();
  target.add_(at::sum(rows_of(rows), {0}, /*keepdim=*/false, target.scalar_type()));
}

}  // namespace braid::ops
