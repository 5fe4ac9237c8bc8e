#include <ATen/ops/empty.h>

#include "runtime/ops/cuda/gemm.h"
#include "runtime/ops/fused_common.h"

namespace braid::ops::fused {

namespace {

// What NVIDIA recommends for Hopper; the allocator hands out the same bytes again and again.
constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;

bool is_factor(const char* operation, const at::Tensor& x) {
  if (x.scalar_type() == at::kBFloat16 && x.stride(1) == 1) return true;
  note_fallback(operation, fmt::format("a factor in {}{}", c10::toString(x.scalar_type()),
                                       x.stride(1) == 1 ? "" : ", its rows not dense"));
  return false;
}

kernels::Factor factor(const at::Tensor& x, bool turned) {
  return {memory(x), x.stride(0), turned};
}

bool run(const char* operation, kernels::Gemm& call, const at::Tensor& like) {
  const at::Tensor workspace = at::empty({kWorkspace}, like.options().dtype(at::kByte));
  call.workspace = memory(workspace);
  call.workspace_size = static_cast<std::size_t>(kWorkspace);
  const std::string trouble = kernels::gemm(call, stream_of(like));
  if (trouble.empty()) return true;
  note_fallback(operation,
                fmt::format("{}×{}×{}: {}", call.rows, call.columns, call.inner, trouble));
  return false;
}

}  // namespace

bool add_product(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  constexpr const char* kName = "weight_gradient";
  if (!gradient.is_cuda() || !reaches(gradient) || gradient.numel() == 0 || dy.size(0) == 0)
    return false;
  if (!takes_floats(kName, {&gradient}) || !is_factor(kName, dy) || !is_factor(kName, x))
    return false;
  kernels::Gemm call;
  call.left = factor(dy, true);
  call.right = factor(x, false);
  call.rows = gradient.size(0);
  call.columns = gradient.size(1);
  call.inner = dy.size(0);
  call.out_type = kernels::Type::fp32;
  call.out = memory(gradient);
  call.added = call.out;
  return run(kName, call, gradient);
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
  if (!run(kName, call, y)) return std::nullopt;
  return y;
}

}  // namespace braid::ops::fused
