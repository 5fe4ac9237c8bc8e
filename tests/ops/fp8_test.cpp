#include "runtime/ops/fp8.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "runtime/ops/linear.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

TEST(Fp8, TheLargestValueBecomesTheFormatsLargest) {
  // Under a scale of 1 these are e4m3's own neighbours: 3 bits of mantissa, ties to even.
  const at::Tensor x = at::tensor({448.0F, 17.0F, 18.0F, 19.0F, -1.0625F, 0.0F});
  EXPECT_TRUE(as_fp8(x, Fp8::e4m3).equal(at::tensor({448.0F, 16.0F, 18.0F, 20.0F, -1.0F, 0.0F})));
  // A common factor changes nothing but the scale.
  EXPECT_TRUE(as_fp8(x.mul(0.25), Fp8::e4m3).equal(as_fp8(x, Fp8::e4m3).mul(0.25)));
  const at::Tensor y = at::tensor({57344.0F, 4.5F, 5.0F});
  EXPECT_TRUE(as_fp8(y, Fp8::e5m2).equal(at::tensor({57344.0F, 4.0F, 5.0F})));
}

TEST(Fp8, NothingButZerosStaysSo) {
  EXPECT_TRUE(as_fp8(at::zeros({4}), Fp8::e4m3).equal(at::zeros({4})));
}

TEST(Fp8, TensorsOfTheSmallestNumbersKeepTheirValues) {
  const at::Tensor x = at::tensor({1.0F, -0.5F, 0.25F, 0.0F});
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2})
    for (const float size : {1e-30F, 1e-34F, 1e-36F}) {
      const at::Tensor exact = x.to(at::kDouble).mul(size);
      const at::Tensor error = as_fp8(x.mul(size), format).to(at::kDouble).sub(exact).abs();
      EXPECT_LE(error.max().item<double>(), size / 8) << size;  // false for NaN
    }
  // Of fp32's own subnormal numbers at least nothing becomes NaN.
  EXPECT_TRUE(as_fp8(x.mul(1e-44F), Fp8::e5m2).isfinite().all().item<bool>());
}

TEST(Fp8, ScopesEndWhereTheyBegan) {
  EXPECT_FALSE(Fp8Scope::on());
  {
    const Fp8Scope outer(true);
    EXPECT_TRUE(Fp8Scope::on());
    {
      const Fp8Scope inner(false);
      EXPECT_FALSE(Fp8Scope::on());
    }
    EXPECT_TRUE(Fp8Scope::on());
  }
  EXPECT_FALSE(Fp8Scope::on());
}

TEST(Fp8, ProductsSeeRoundedFactors) {
  const at::Tensor x = random_tensor({32, 48}, 1, at::kFloat),
                   dy = random_tensor({32, 16}, 2, at::kFloat);
  const at::Tensor weight = random_tensor({16, 48}, 3, at::kFloat);
  const Fp8Scope scope(true);
  const at::Tensor narrow_x = as_fp8(x, Fp8::e4m3), narrow_dy = as_fp8(dy, Fp8::e5m2);
  const at::Tensor narrow_weight = as_fp8(weight, Fp8::e4m3);
  EXPECT_TRUE(ops::linear(x, weight).allclose(at::linear(narrow_x, narrow_weight)));
  EXPECT_TRUE(linear_input_gradient(dy, weight).allclose(at::matmul(narrow_dy, narrow_weight)));
  const at::Tensor gradient = at::zeros({16, 48});
  add_weight_gradient({gradient, true}, dy, x);
  EXPECT_TRUE(gradient.allclose(at::matmul(narrow_dy.t(), narrow_x), 1e-4, 1e-4));
  // And it is a rounding, not the identity.
  EXPECT_FALSE(ops::linear(x, weight).allclose(at::linear(x, weight), 1e-4, 1e-4));
}

}  // namespace
}  // namespace braid::ops
