// The activations' kernels against the operators in fp64 on the CPU.

#include "runtime/ops/activation.h"
#include "runtime/ops/device.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaActivation : public KernelTest {};
BRAID_KERNEL_TYPES(CudaActivation);

constexpr Activation kActivations[] = {Activation::gelu, Activation::gelu_tanh, Activation::geglu,
                                       Activation::geglu_tanh, Activation::swiglu};

TEST_P(CudaActivation, ForwardAndGradientAreExact) {
  for (const Activation activation : kActivations) {
    for (const std::int64_t width : {8, 7, 1, 2056, 300}) {
      const std::int64_t inputs = width * (is_gated(activation) ? 2 : 1);
      const at::Tensor x = random({3, 2, inputs}, 1).mul(3), dy = random({3, 2, width}, 2);
      const at::Tensor y = activate(activation, x);
      EXPECT_EQ(y.scalar_type(), type());
      EXPECT_TRUE(close(y, activate(activation, exact(x)), tolerance()))
          << static_cast<int>(activation) << " " << width;
      const at::Tensor dx = activate_backward(activation, exact(dy), exact(x));
      EXPECT_TRUE(close(activate_backward(activation, dy, x), dx, tolerance()))
          << static_cast<int>(activation) << " " << width;
      const ActivatedAgain again = activate_again(activation, dy.clone(), x.clone());
      EXPECT_TRUE(identical(again.y, y)) << static_cast<int>(activation) << " " << width;
      EXPECT_TRUE(close(again.dx, dx, tolerance())) << static_cast<int>(activation) << " " << width;
    }
  }
}

TEST_P(CudaActivation, RowsOfABackwardAddUpToItsColumns) {
  for (const Activation activation : {Activation::gelu_tanh, Activation::swiglu}) {
    for (const std::int64_t width : {8, 7, 2056}) {
      const std::int64_t inputs = width * (is_gated(activation) ? 2 : 1);
      const at::Tensor x = random({67, 2, inputs}, 1).mul(3), dy = random({67, 2, width}, 2);
      const at::Tensor dx = activate_backward(activation, exact(dy), exact(x)).flatten(0, 1).sum(0);
      const ActivatedAgain few = activate_again(activation, dy.clone(), x.clone(), true);
      EXPECT_LE(few.rows.size(0), 67 * 2) << width;
      EXPECT_EQ(few.rows.scalar_type(), at::kFloat);
      EXPECT_TRUE(close(few.rows.sum(0), dx, 2e-5)) << static_cast<int>(activation) << " " << width;
      const ActivatedAgain all = activate_again(activation, dy.clone(), x.clone());
      EXPECT_TRUE(identical(all.rows, all.dx));
      EXPECT_TRUE(identical(few.dx, all.dx));
    }
  }
}

TEST_P(CudaActivation, FarFromZeroTheCurvesAreStraight) {
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh}) {
    const at::Tensor x = random({2, 16}, 1).abs().add(20).mul(4);
    EXPECT_TRUE(identical(activate(activation, x), x));
    EXPECT_TRUE(close(activate(activation, x.neg()).abs().add(1), x.mul(0).add(1), 1e-6));
    EXPECT_TRUE(close(activate_backward(activation, x, x), x, tolerance()));
  }
}

TEST_P(CudaActivation, ABiasIsAddedOnTheWay) {
  for (const bool gated : {false, true}) {
    const std::int64_t width = 24, inputs = gated ? 48 : 24;
    const at::Tensor x = random({5, inputs}, 1), bias = random({inputs}, 2);
    const at::Tensor dy = random({5, width}, 3);
    at::Tensor y = random({5, width}, 4), dx = random({5, inputs}, 5);
    kernels::ActivateBackward back;
    back.call.type = type() == at::kFloat ? kernels::Type::fp32 : kernels::Type::bf16;
    back.call.curve = kernels::Curve::gelu_tanh;
    back.call.gated = gated;
    back.call.x = x.data_ptr();
    back.call.bias = bias.data_ptr();
    back.call.y = y.data_ptr();
    back.call.rows = 5;
    back.call.width = width;
    back.dy = dy.data_ptr();
    back.dx = dx.data_ptr();
    const Activation activation = gated ? Activation::geglu_tanh : Activation::gelu_tanh;
    const at::Tensor biased = exact(x).add(exact(bias));
    kernels::activate(back.call, current_stream(device));
    EXPECT_TRUE(close(y, activate(activation, biased), tolerance())) << gated;
    y.zero_();
    kernels::activate_backward(back, current_stream(device));
    EXPECT_TRUE(close(y, activate(activation, biased), tolerance())) << gated;
    EXPECT_TRUE(close(dx, activate_backward(activation, exact(dy), biased), tolerance())) << gated;
  }
}

}  // namespace
}  // namespace braid::ops
