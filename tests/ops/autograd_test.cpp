#include "runtime/ops/autograd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "runtime/ops/linear.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

at::Tensor some_rows_times_sine(const std::vector<at::Tensor>& in) {
  return at::index_select(in[0], 0, in[1]).mul(in[2].sin());
}

TEST(Recorded, GradientsAreTheDerivativesByHand) {
  const at::NoGradGuard as_the_runtime_runs;
  const at::Tensor x = random_tensor({4, 3}, 1);
  const at::Tensor rows = at::tensor({2, 0, 2}, at::kLong);
  const at::Tensor angle = random_tensor({3}, 2);
  const at::Tensor unused = random_tensor({3}, 3);
  const at::Tensor dy = random_tensor({3, 3}, 4);
  Recorded call(some_rows_times_sine, {x, rows, angle, unused, at::Tensor()});
  EXPECT_FALSE(call.output().requires_grad());
  EXPECT_TRUE(close(call.output(), x.index_select(0, rows).mul(angle.sin()), 1e-14));

  const std::vector<at::Tensor> gradients = call.backward(dy);
  ASSERT_EQ(gradients.size(), 5U);
  at::Tensor dx = at::zeros_like(x);
  dx[2].add_(dy[0].add(dy[2]).mul(angle.sin()));
  dx[0].add_(dy[1].mul(angle.sin()));
  EXPECT_TRUE(close(gradients[0], dx, 1e-14));
  EXPECT_FALSE(gradients[1].defined());
  EXPECT_TRUE(close(gradients[2], dy.mul(x.index_select(0, rows)).sum(0).mul(angle.cos()), 1e-14));
  EXPECT_FALSE(gradients[3].defined());
  EXPECT_FALSE(gradients[4].defined());
}

TEST(Recorded, LeavesInputsAndTheGradModeAlone) {
  const at::NoGradGuard as_the_runtime_runs;
  const at::Tensor x = random_tensor({4, 3}, 1);
  Recorded call([](const std::vector<at::Tensor>& in) { return in[0].exp(); }, {x});
  EXPECT_FALSE(x.requires_grad());
  EXPECT_FALSE(at::GradMode::is_enabled());
  EXPECT_FALSE(call.backward(x)[0].requires_grad());
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST(Recorded, AConstantHasNoGradients) {
  Recorded call([](const std::vector<at::Tensor>& in) { return in[0].detach(); },
                {random_tensor({3}, 1)});
  EXPECT_FALSE(call.backward(random_tensor({3}, 2))[0].defined());
}

TEST(RecordedDeathTest, HasOneBackward) {
  const at::Tensor x = random_tensor({3}, 1);
  EXPECT_DEATH(
      {
        Recorded call([](const std::vector<at::Tensor>& in) { return in[0].exp(); }, {x});
        call.backward(x);
        call.backward(x);
      },
      "one backward");
}

}  // namespace
}  // namespace braid::ops
