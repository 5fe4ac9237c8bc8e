// Rounding to 8 bits by the kernels, bit by bit against ATen's, and products of the results.

#include <ATen/ops/zeros.h>

#include "runtime/ops/device.h"
#include "runtime/ops/fallback.h"
#include "runtime/ops/fp8.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/linear.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaFp8 : public KernelTest {
 protected:
  // The values that the bytes and the scale stand for, as [rows, width].
  at::Tensor by_kernel(const at::Tensor& x, Fp8 format, bool turned) const {
    const auto [bytes, scale] = fused::round_to_fp8(x, format, turned);
    const at::ScalarType narrow = format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
    const at::Tensor values = bytes.view(narrow).to(at::kFloat).mul(scale);
    return turned ? values.view({x.size(1), x.size(0)}).t() : values.view(x.sizes());
  }
};
BRAID_KERNEL_TYPES(CudaFp8);

TEST_P(CudaFp8, KernelsRoundAsAtenDoes) {
  // Neither side fills its last tile; one matrix is a single row of tiles.
  for (const auto& [rows, width] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{16, 16}, {80, 144}, {208, 48}}) {
    const at::Tensor x = random({rows, width}, 1).mul(3e-3);
    for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2})
      for (const bool turned : {false, true})
        EXPECT_TRUE(close(by_kernel(x, format, turned), as_fp8(x, format).to(at::kCPU), 1e-6))
            << rows << "×" << width << (turned ? ", turned" : "");
  }
}

TEST_P(CudaFp8, ZerosStayZeros) {
  const at::Tensor x = at::zeros({16, 32}, at::TensorOptions(type()).device(device));
  EXPECT_EQ(by_kernel(x, Fp8::e4m3, true).abs().max().item<double>(), 0);
}

TEST_P(CudaFp8, TinyTensorsAreRoundedAsByAten) {
  const at::Tensor x = random({32, 32}, 1).mul(1e-35);
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
    const at::Tensor by_aten = as_fp8(x, format).to(at::kCPU), got = by_kernel(x, format, false);
    EXPECT_TRUE(got.isfinite().all().item<bool>());
    EXPECT_TRUE(close(got.mul(1e35), by_aten.mul(1e35), 1e-6));
  }
}

TEST_P(CudaFp8, ProductsOfTheGpuAreThoseOfRoundedFactors) {
  if (!device.is_cuda() || type() != at::kBFloat16) GTEST_SKIP() << "needs a GPU, and bf16";
  if (compute_capability(device) < 89) GTEST_SKIP() << "this GPU has no fp8";
  std::vector<std::string> notes;
  const FallbackListener before = on_fallback([&](const std::string& n) { notes.push_back(n); });
  const at::Tensor x = random({256, 128}, 1), dy = random({256, 192}, 2);
  const at::Tensor weight = random({192, 128}, 3), bias = random({192}, 4);
  const Fp8Scope scope(true);
  const auto wide = [](const at::Tensor& t, Fp8 format) {
    return as_fp8(t, format).to(at::kCPU, at::kDouble);
  };
  const at::Tensor wx = wide(x, Fp8::e4m3), wdy = wide(dy, Fp8::e5m2);
  const at::Tensor ww = wide(weight, Fp8::e4m3);
  EXPECT_TRUE(close(ops::linear(x, weight, bias), wx.matmul(ww.t()).add(exact(bias)), tolerance()));
  const at::Tensor residual = random({256, 192}, 5);
  EXPECT_TRUE(close(ops::linear_onto(residual, x, weight), wx.matmul(ww.t()).add(exact(residual)),
                    tolerance()));
  EXPECT_TRUE(close(linear_input_gradient(dy, weight), wdy.matmul(ww), tolerance()));
  const at::Tensor gradient = random_tensor({192, 128}, 6, at::kFloat, device);
  const at::Tensor expected = exact(gradient).add(wdy.t().matmul(wx));
  add_weight_gradient({gradient, false}, dy, x);
  EXPECT_TRUE(close(gradient, expected, 1e-3));
  EXPECT_TRUE(notes.empty()) << notes.front();
  on_fallback(before);
}

}  // namespace
}  // namespace braid::ops
