#include "runtime/ops/router.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "runtime/ops/autograd.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

TEST(Router, ForwardAndGradientAreAutograds) {
  for (const at::Device device : test_devices()) {
    for (const std::int64_t experts : {1, 4, 9}) {
      for (const std::int64_t per_token : {1, 2, 4}) {
        if (per_token > experts) continue;
        const at::Tensor logits = random_tensor({13, experts}, 1, at::kDouble, device).mul(2);
        const at::Tensor dweights = random_tensor({13, per_token}, 2, at::kDouble, device);
        const Routed routed = route(logits, per_token);
        Recorded reference(
            [&](const std::vector<at::Tensor>& in) {
              const at::Tensor best = at::softmax(in[0], 1).gather(1, routed.chosen);
              return best.div(best.sum(1, true));
            },
            {logits});
        EXPECT_TRUE(close(routed.probabilities, at::softmax(logits, 1), 1e-10));
        EXPECT_TRUE(identical(routed.chosen, std::get<1>(logits.topk(per_token, 1))));
        EXPECT_TRUE(close(routed.weights, reference.output(), 1e-10));
        EXPECT_TRUE(identical(routed_weights(routed.probabilities, routed.chosen), routed.weights));
        const at::Tensor expected = reference.backward(dweights)[0];
        const at::Tensor found = route_backward(dweights, routed.probabilities, routed.chosen);
        if (per_token == 1) {
          // A lone weight is 1 whatever the logits are; what autograd gives is rounding.
          EXPECT_EQ(routed.weights.sub(1).abs().max().item().toDouble(), 0);
          EXPECT_LE(found.abs().max().item().toDouble(), 1e-15);
        } else {
          EXPECT_TRUE(close(found, expected, 1e-10)) << per_token << " of " << experts;
        }
      }
    }
  }
}

TEST(Router, TiesGoToTheLowerExpert) {
  for (const at::Device device : test_devices()) {
    const at::Tensor logits =
        at::tensor({1.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0, 5.0, -1.0, 5.0}, at::kFloat)
            .view({3, 4})
            .to(device);
    const at::Tensor expected =
        at::tensor({1, 2, 0, 0, 1, 2, 1, 3, 0}, at::kLong).view({3, 3}).to(device);
    EXPECT_TRUE(identical(route(logits, 3).chosen, expected));

    const at::Tensor many = route(at::zeros({2, 200}, logits.options()), 150).chosen;
    EXPECT_TRUE(identical(many[1], at::arange(150, at::TensorOptions(at::kLong).device(device))));
  }
}

TEST(Router, Bfloat16LogitsAreRoutedInFloat) {
  for (const at::Device device : test_devices()) {
    const at::Tensor logits = random_tensor({13, 8}, 1, at::kBFloat16, device);
    const Routed halves = route(logits, 2);
    const Routed whole = route(logits.to(at::kFloat), 2);
    EXPECT_TRUE(identical(halves.probabilities, whole.probabilities));
    EXPECT_TRUE(identical(halves.chosen, whole.chosen));
    EXPECT_TRUE(identical(halves.weights, whole.weights));
    const at::Tensor dweights = random_tensor({13, 2}, 2, at::kBFloat16, device);
    EXPECT_TRUE(
        identical(route_backward(dweights, halves.probabilities, halves.chosen),
                  route_backward(dweights.to(at::kFloat), whole.probabilities, whole.chosen)));
  }
}

}  // namespace
}  // namespace braid::ops
