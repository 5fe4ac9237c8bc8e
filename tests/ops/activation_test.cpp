#include "runtime/ops/activation.h"

#include <ATen/ops/mul.h>

#include <cmath>
#include <numbers>

#include "runtime/ops/autograd.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

at::Tensor exact_gelu(const at::Tensor& x) {
  return x.mul(x.div(std::numbers::sqrt2).erf().add(1)).mul(0.5);
}
at::Tensor tanh_gelu(const at::Tensor& x) {
  const at::Tensor inner = x.add(x.pow(3).mul(0.044715)).mul(std::sqrt(2 / std::numbers::pi));
  return x.mul(inner.tanh().add(1)).mul(0.5);
}
at::Tensor ramp(const at::Tensor& x) { return x.clamp_min(0); }
at::Tensor silu(const at::Tensor& x) { return x.div(x.neg().exp().add(1)); }

struct Case {
  const char* name;
  Activation activation;
  at::Tensor (*curve)(const at::Tensor&);
  bool gated;
};
const Case kCases[] = {
    {"gelu", Activation::gelu, exact_gelu, false},
    {"gelu_tanh", Activation::gelu_tanh, tanh_gelu, false},
    {"relu", Activation::relu, ramp, false},
    {"swiglu", Activation::swiglu, silu, true},
    {"geglu", Activation::geglu, exact_gelu, true},
    {"geglu_tanh", Activation::geglu_tanh, tanh_gelu, true},
};

TEST(Activation, ForwardAndGradientAreAutograds) {
  for (const at::Device device : test_devices()) {
    for (const Case& c : kCases) {
      for (const std::int64_t width : {1, 7, 40}) {
        const at::Tensor x =
            random_tensor({5, 3, c.gated ? 2 * width : width}, 1, at::kDouble, device);
        const at::Tensor dy = random_tensor({5, 3, width}, 2, at::kDouble, device);
        Recorded reference(
            [&](const std::vector<at::Tensor>& in) {
              if (!c.gated) return c.curve(in[0]);
              return c.curve(in[0].narrow(-1, 0, width)).mul(in[0].narrow(-1, width, width));
            },
            {x});
        EXPECT_TRUE(close(activate(c.activation, x), reference.output(), 1e-10)) << c.name;
        EXPECT_TRUE(close(activate_backward(c.activation, dy, x), reference.backward(dy)[0], 1e-10))
            << c.name;
      }
    }
  }
}

TEST(Activation, LeavesItsInputAlone) {
  for (const Case& c : kCases) {
    const at::Tensor x = random_tensor({3, 2, 8}, 1);
    const at::Tensor dy = random_tensor({3, 2, c.gated ? 4 : 8}, 2);
    const at::Tensor kept = x.clone();
    const at::Tensor kept_dy = dy.clone();
    activate(c.activation, x);
    activate_backward(c.activation, dy, x);
    EXPECT_TRUE(identical(x, kept)) << c.name;
    EXPECT_TRUE(identical(dy, kept_dy)) << c.name;
  }
}

TEST(Activation, Bfloat16IsNearFloat) {
  for (const at::Device device : test_devices()) {
    for (const Case& c : kCases) {
      const at::Tensor x = random_tensor({9, 2, 64}, 1, at::kBFloat16, device);
      const at::Tensor dy = random_tensor({9, 2, c.gated ? 32 : 64}, 2, at::kBFloat16, device);
      const at::Tensor y = activate(c.activation, x);
      const at::Tensor dx = activate_backward(c.activation, dy, x);
      EXPECT_EQ(y.scalar_type(), at::kBFloat16) << c.name;
      EXPECT_EQ(dx.scalar_type(), at::kBFloat16) << c.name;
      EXPECT_TRUE(close(y, activate(c.activation, x.to(at::kFloat)), 1e-2)) << c.name;
      EXPECT_TRUE(
          close(dx, activate_backward(c.activation, dy.to(at::kFloat), x.to(at::kFloat)), 1e-2))
          << c.name;
    }
  }
}

}  // namespace
}  // namespace braid::ops
