// A sub-layer without a written backward, against the gradients worked out by hand.

#include "runtime/models/autograd_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include "runtime/comm/in_process.h"
#include "tests/support/random_plan.h"
#include "tests/support/tensors.h"

namespace braid::models {
namespace {

// x + tanh(x·Wᵀ): with t = tanh(…) and e = dy·(1 - t²), dx = dy + e·W and dW = eᵀ·x.
TEST(AutogradBlock, HasTheGradientsOfItsFunction) {
  const at::NoGradGuard no_grad;
  comm::run_in_process(1, [](comm::Group& world) {
    const Plan plan = reference_plan(tiny_model("llama", 2, 16), 2);
    parallel::Groups groups(world);
    const parallel::Site site = parallel::make_site(plan, 1, Strategy{}, 0, true,
                                                    parallel::fp64_numerics(at::kCPU), groups);
    parallel::Parameters::Declare declare(site);
    AutogradBlock block(declare, 0, {{.name = "w", .shape = {32, 32}, .deviation = 0.3}},
                        [](const std::vector<at::Tensor>& inputs) {
                          return at::matmul(inputs[0], inputs[1].t()).tanh();
                        });
    const auto parameters = declare.make("block");
    parameters->initialise(1);

    const at::Tensor x = random_tensor({16, 2, 32}, 1), dy = random_tensor({16, 2, 32}, 2);
    parallel::Saved saved;
    parallel::WeightWork work;
    const at::Tensor y = block.forward(x, {}, *parameters, saved);
    EXPECT_EQ(saved.bytes(), static_cast<std::int64_t>(x.nbytes())) << "its input alone";
    parameters->begin_gradients();
    const at::Tensor dx = block.backward(dy, {}, *parameters, saved, work);
    EXPECT_EQ(parameters->gradient(0).abs().max().item<double>(), 0) << "waits for its turn";
    work.run();

    const at::Tensor w = parameters->weight(0);
    const at::Tensor t = at::matmul(x, w.t()).tanh();
    const at::Tensor e = dy * (1 - t * t);
    EXPECT_TRUE(close(y, x + t, 1e-12));
    EXPECT_TRUE(close(dx, dy + at::matmul(e, w), 1e-10));
    EXPECT_TRUE(close(parameters->gradient(0),
                      at::matmul(e.reshape({-1, 32}).t(), x.reshape({-1, 32})), 1e-10));
  });
}

}  // namespace
}  // namespace braid::models
