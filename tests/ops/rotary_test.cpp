#include "runtime/ops/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>

#include <cmath>

#include "runtime/ops/autograd.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

struct Angles {
  at::Tensor positions, frequencies;
};
Angles angles_of(std::int64_t first, std::int64_t tokens, std::int64_t head_dim,
                 at::Device device = at::Device(at::kCPU)) {
  const at::Tensor exponents = at::arange(0, head_dim, 2, at::TensorOptions(at::kDouble));
  return {at::arange(first, first + tokens, at::TensorOptions(at::kLong)).to(device),
          exponents.div(static_cast<double>(-head_dim)).mul(std::log(10000.0)).exp().to(device)};
}

// Hugging Face's formula: x·cos + rotate_half(x)·sin, the angles written twice over.
at::Tensor by_half_rotation(const at::Tensor& x, const Angles& angles) {
  const at::Tensor once =
      at::mul(angles.positions.to(at::kDouble).unsqueeze(1), angles.frequencies.unsqueeze(0));
  const at::Tensor angle = at::cat({once, once}, -1).unsqueeze(1).unsqueeze(1);
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor rotated = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  return x.mul(angle.cos()).add(rotated.mul(angle.sin()));
}

TEST(Rotary, ForwardAndGradientAreAutograds) {
  for (const at::Device device : test_devices()) {
    for (const std::int64_t head_dim : {2, 6, 64}) {
      const Angles angles = angles_of(17, 5, head_dim, device);
      const RotaryTable table = rotary_table(angles.positions, angles.frequencies, at::kDouble);
      EXPECT_EQ(table.cos.sizes(), (std::vector<std::int64_t>{5, head_dim / 2}));
      const at::Tensor x = random_tensor({5, 2, 3, head_dim}, 1, at::kDouble, device);
      const at::Tensor dy = random_tensor({5, 2, 3, head_dim}, 2, at::kDouble, device);
      Recorded reference(
          [&](const std::vector<at::Tensor>& in) { return by_half_rotation(in[0], angles); }, {x});
      EXPECT_TRUE(close(rotary(x, table), reference.output(), 1e-10)) << head_dim;
      EXPECT_TRUE(close(rotary_backward(dy, table), reference.backward(dy)[0], 1e-10)) << head_dim;
    }
  }
}

TEST(Rotary, TurningBackUndoesTheTurn) {
  const Angles angles = angles_of(0, 9, 8);
  const RotaryTable table = rotary_table(angles.positions, angles.frequencies, at::kDouble);
  const at::Tensor x = random_tensor({9, 2, 3, 8}, 1);
  EXPECT_TRUE(close(rotary_backward(rotary(x, table), table), x, 1e-12));
}

TEST(Rotary, ReadsQueriesInsideAFusedProjection) {
  const Angles angles = angles_of(0, 4, 8);
  const RotaryTable table = rotary_table(angles.positions, angles.frequencies, at::kDouble);
  const at::Tensor fused = random_tensor({4, 2, 5, 8}, 1);
  const at::Tensor inside = fused.narrow(2, 1, 3);
  EXPECT_TRUE(identical(rotary(inside, table), rotary(inside.contiguous(), table)));
}

TEST(Rotary, Bfloat16IsComputedInFloatAndRoundedOnce) {
  for (const at::Device device : test_devices()) {
    const Angles angles = angles_of(1000, 7, 16, device);
    const RotaryTable table = rotary_table(angles.positions, angles.frequencies, at::kBFloat16);
    EXPECT_EQ(table.cos.scalar_type(), at::kFloat);
    const at::Tensor x = random_tensor({7, 2, 3, 16}, 1, at::kBFloat16, device);
    EXPECT_TRUE(identical(rotary(x, table), rotary(x.to(at::kFloat), table).to(at::kBFloat16)));
    EXPECT_TRUE(identical(rotary_backward(x, table),
                          rotary_backward(x.to(at::kFloat), table).to(at::kBFloat16)));
  }
}

}  // namespace
}  // namespace braid::ops
