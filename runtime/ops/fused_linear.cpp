#include <ATen/ops/empty.h>

#include "runtime/ops/cuda/gemm.h"
#include "runtime/ops/fp8.h"
#include "runtime/ops/fused_common.h"

namespace braid::ops::fused {

namespace {

// Algorithms that cut the sum of a product into parts need room for these. They pay where the
// result has too few tiles for all processors: there they get what NVIDIA recommends for Hopper,
// elsewhere a little for counters. The allocator hands out the same bytes again and again.
std::int64_t workspace_for(const kernels::Gemm& call) {
  constexpr std::int64_t kFew = std::int64_t{1} << 22;  // elements: 128 tiles of 128 × 256
  constexpr std::int64_t kParts = std::int64_t{32} << 20, kCounters = std::int64_t{1} << 20;
  return call.groups * call.rows * call.columns <= kFew ? kParts : kCounters;
}

bool is_factor(const char* operation, const at::Tensor& x) {
  if (x.scalar_type() == at::kBFloat16 && x.stride(1) == 1) return true;
  note_fallback(operation, fmt::format("a factor in {}{}", c10::toString(x.scalar_type()),
                                       x.stride(1) == 1 ? "" : ", its rows not dense"));
  return false;
}

kernels::Factor factor(const at::Tensor& x, bool turned) {
  return {memory(x), x.stride(0), turned};
}

}  // namespace

Rounded round_to_fp8(const at::Tensor& x, kernels::Fp8 format, bool turned) {
  const std::int64_t partials = kernels::absmax_partials(x.numel());
  const at::Tensor largest = at::empty({partials}, x.options().dtype(at::kFloat));
  kernels::absmax(type_of(x), memory(x), x.numel(), floats(largest), stream_of(x));
  Rounded made{at::empty({x.numel()}, x.options().dtype(at::kByte)),
               at::empty({1}, x.options().dtype(at::kFloat))};
  kernels::Quantise call;
  call.type = type_of(x);
  call.format = format;
  call.x = memory(x);
  call.rows = x.size(0);
  call.width = x.size(1);
  call.partials = floats(largest);
  call.num_partials = partials;
  call.turned = turned;
  call.out = memory(made.values);
  call.scale = floats(made.scale);
  kernels::quantise(call, stream_of(x));
  return made;
}

namespace {

// Why a product stays in bf16; empty: it need not.
std::string why_not_fp8(const kernels::Gemm& call, const at::Tensor& left,
                        const at::Tensor& right) {
  constexpr std::int64_t kMultiple = 16;
  if (!has_fp8(left.device())) return "this GPU has no products in fp8";
  if (call.rows % kMultiple != 0 || call.columns % kMultiple != 0 || call.inner % kMultiple != 0)
    return fmt::format("{}×{}×{} are not all multiples of {}", call.rows, call.columns, call.inner,
                       kMultiple);
  if (!left.is_contiguous() || !right.is_contiguous()) return "a factor is part of a wider matrix";
  return {};
}

// The factors of a product that Fp8Scope is on for, what is summed over lying together. They live
// until it is launched.
class Fp8Factors {
 public:
  Fp8Factors(kernels::Gemm& call, const at::Tensor& left, const at::Tensor& right,
             Fp8 left_format) {
    if (!Fp8Scope::on()) return;
    if (const std::string why = why_not_fp8(call, left, right); !why.empty()) {
      note_fallback("fp8", why);
      return;
    }
    left_ = round_to_fp8(left, left_format, call.left.turned);
    right_ = round_to_fp8(right, Fp8::e4m3, !call.right.turned);
    call.left = {memory(left_.values), call.inner, false,
                 left_format == Fp8::e4m3 ? kernels::Element::e4m3 : kernels::Element::e5m2,
                 floats(left_.scale)};
    call.right = {memory(right_.values), call.inner, true, kernels::Element::e4m3,
                  floats(right_.scale)};
    call.rough = left_format == Fp8::e4m3;  // forward; gradients are summed with care
  }

 private:
  Rounded left_, right_;
};

bool products_are_loose = false;

bool run(const char* operation, kernels::Gemm& call, const at::Tensor& like) {
  call.loose = products_are_loose;
  const at::Tensor workspace = at::empty({workspace_for(call)}, like.options().dtype(at::kByte));
  call.workspace = memory(workspace);
  call.workspace_size = static_cast<std::size_t>(workspace.numel());
  const std::string trouble = kernels::gemm(call, stream_of(like));
  if (trouble.empty()) return true;
  note_fallback(operation,
                fmt::format("{}×{}×{}: {}", call.rows, call.columns, call.inner, trouble));
  return false;
}

enum class Rounding { none, gradient };

// A matrix whose rows are dense, or whose columns are: then it takes part turned.
bool add_to(const char* name, const Sum& sum, const at::Tensor& left, const at::Tensor& right,
            Rounding rounding) {
  const at::Tensor& out = sum.value;
  if (!out.is_cuda() || !reaches(out) || out.numel() == 0 || left.size(1) == 0) return false;
  const bool left_turned = left.stride(1) != 1, right_turned = right.stride(1) != 1;
  const at::Tensor first = left_turned ? left.t() : left;
  const at::Tensor second = right_turned ? right.t() : right;
  if (!takes(name, {&out}) || !is_factor(name, first) || !is_factor(name, second)) return false;
  kernels::Gemm call;
  call.left = factor(first, left_turned);
  call.right = factor(second, right_turned);
  call.rows = out.size(0);
  call.columns = out.size(1);
  call.inner = left.size(1);
  call.out_type = type_of(out);
  call.out = memory(out);
  if (!sum.fresh) call.added = call.out;
  const Fp8Scope scope(rounding == Rounding::gradient && Fp8Scope::on());
  const Fp8Factors factors(call, first, second, Fp8::e5m2);
  return run(name, call, out);
}

}  // namespace

void share_processors() { products_are_loose = true; }

bool add_product(const Sum& gradient, const at::Tensor& dy, const at::Tensor& x) {
  return add_to("weight_gradient", gradient, dy.t(), x, Rounding::gradient);
}

bool add_to(const Sum& sum, const at::Tensor& left, const at::Tensor& right) {
  return add_to("sum_of_products", sum, left, right, Rounding::none);
}

namespace {

// [.., columns] of x's leading sizes.
at::Tensor like_rows_of(const at::Tensor& x, std::int64_t columns) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = columns;
  return at::empty(sizes, x.options());
}

// Rows times W or Wᵀ.
bool multiply(const char* name, const RowGroups& rows, const at::Tensor& weight, bool turned,
              const at::Tensor& bias, Fp8 format) {
  kernels::Gemm call;
  // Those that are rounded become dense.
  const at::Tensor left = Fp8Scope::on() ? rows.in.flatten(0, 1) : rows.in[0];
  call.left = factor(left, false);
  call.right = factor(weight, turned);
  call.groups = rows.in.size(0);
  call.rows = rows.in.size(1);
  call.columns = rows.out.size(2);
  call.inner = rows.in.size(2);
  call.left_group = Fp8Scope::on() ? call.rows * left.stride(0) : rows.in.stride(0);
  call.out = memory(rows.out);
  call.out_group = rows.out.stride(0);
  call.bias = memory(bias);
  const Fp8Factors factors(call, left, weight, format);
  return run(name, call, rows.out);
}

bool takes_factors(const char* name, const at::Tensor& rows, const at::Tensor& weight,
                   const at::Tensor& bias) {
  if (!rows.is_cuda() || !reaches(rows) || rows.numel() == 0) return false;
  // Other precisions are not for speed, and need no note.
  if (rows.scalar_type() != at::kBFloat16) return false;
  return (!bias.defined() || takes(name, {&bias})) && is_factor(name, rows) &&
         is_factor(name, weight);
}

}  // namespace

std::optional<at::Tensor> linear(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  if (!takes_factors("linear", rows, weight, bias)) return std::nullopt;
  at::Tensor y = like_rows_of(x, weight.size(0));
  if (!multiply("linear", row_groups(y, rows), weight, true, bias, Fp8::e4m3)) return std::nullopt;
  return y;
}

bool linear_into(const RowGroups& rows, const at::Tensor& weight, const at::Tensor& bias) {
  return takes_factors("linear", rows.in[0], weight, bias) &&
         multiply("linear", rows, weight, true, bias, Fp8::e4m3);
}

std::optional<at::Tensor> linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor rows = dy.reshape({-1, dy.size(-1)});
  if (!takes_factors("linear_input_gradient", rows, weight, {})) return std::nullopt;
  at::Tensor dx = like_rows_of(dy, weight.size(1));
  if (!multiply("linear_input_gradient", row_groups(dx, rows), weight, false, {}, Fp8::e5m2))
    return std::nullopt;
  return dx;
}

bool linear_input_gradient_into(const RowGroups& rows, const at::Tensor& weight) {
  return takes_factors("linear_input_gradient", rows.in[0], weight, {}) &&
         multiply("linear_input_gradient", rows, weight, false, {}, Fp8::e5m2);
}

std::optional<at::Tensor> linear_onto(const at::Tensor& residual, const at::Tensor& x,
                                      const at::Tensor& weight, const at::Tensor& bias) {
  constexpr const char* kName = "linear_onto";
  if (!residual.is_cuda() || !reaches(residual) || residual.numel() == 0) return std::nullopt;
  if (!takes(kName, {&residual, &bias}) || !is_factor(kName, x) || !is_factor(kName, weight))
    return std::nullopt;
  if (residual.scalar_type() != at::kBFloat16) {
    note_fallback(kName, "a sum that is not bf16");
    return std::nullopt;
  }
  at::Tensor y = at::empty(residual.sizes(), residual.options());
  kernels::Gemm call;
  call.left = factor(x, false);
  call.right = factor(weight, true);
  call.rows = x.size(0);
  call.columns = weight.size(0);
  call.inner = x.size(1);
  call.out = memory(y);
  call.added = memory(residual);
  call.bias = memory(bias);
  const Fp8Factors factors(call, x, weight, Fp8::e4m3);
  if (!run(kName, call, y)) return std::nullopt;
  return y;
}

}  // namespace braid::ops::fused
