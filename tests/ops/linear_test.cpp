#include "runtime/ops/linear.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/ops/autograd.h"
#include "runtime/ops/fp8.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

// Each output by itself: broadcast, multiply, sum.
at::Tensor written_out(const std::vector<at::Tensor>& in) {
  const at::Tensor y = at::sum(at::mul(in[0].unsqueeze(-2), in[1]), at::IntArrayRef{-1});
  return in[2].defined() ? y.add(in[2]) : y;
}

struct Case {
  const char* fact;
  std::vector<std::int64_t> leading;
  std::int64_t in, out;
  bool bias;
};
const Case kCases[] = {
    {"tokens and batch lead", {5, 3}, 7, 4, true},
    {"no bias", {5, 3}, 7, 4, false},
    {"rows alone", {6}, 3, 9, true},
    {"three leading dims", {2, 3, 2}, 5, 1, true},
    {"one of everything", {1, 1}, 1, 1, true},
};

TEST(Linear, ForwardAndGradientsAreAutograds) {
  for (const at::Device device : test_devices()) {
    for (const Case& c : kCases) {
      std::vector<std::int64_t> sizes = c.leading;
      sizes.push_back(c.in);
      const at::Tensor x = random_tensor(sizes, 1, at::kDouble, device);
      const at::Tensor weight = random_tensor({c.out, c.in}, 2, at::kDouble, device);
      const at::Tensor bias =
          c.bias ? random_tensor({c.out}, 3, at::kDouble, device) : at::Tensor();
      sizes.back() = c.out;
      const at::Tensor dy = random_tensor(sizes, 4, at::kDouble, device);

      Recorded reference(written_out, {x, weight, bias});
      EXPECT_TRUE(close(linear(x, weight, bias), reference.output(), 1e-10)) << c.fact;
      const std::vector<at::Tensor> expected = reference.backward(dy);
      EXPECT_TRUE(close(linear_input_gradient(dy, weight), expected[0], 1e-10)) << c.fact;

      const at::Tensor before = random_tensor({c.out, c.in}, 5, at::kDouble, device);
      const at::Tensor gradient = before.clone();
      add_weight_gradient({gradient}, dy, x);
      EXPECT_TRUE(close(gradient, before.add(expected[1]), 1e-10)) << c.fact;
      if (c.bias) {
        const at::Tensor bias_before = random_tensor({c.out}, 6, at::kDouble, device);
        const at::Tensor bias_gradient = bias_before.clone();
        add_rows({bias_gradient}, dy);
        EXPECT_TRUE(close(bias_gradient, bias_before.add(expected[2]), 1e-10)) << c.fact;
      }
    }
  }
}

TEST(Linear, GradientsTouchNothingBesideThemInTheFlatBuffer) {
  const at::Tensor buffer = at::zeros({2 + 12 + 4 + 1}, at::kDouble);
  const at::Tensor dy = random_tensor({5, 4}, 1);
  const at::Tensor x = random_tensor({5, 3}, 2);
  add_weight_gradient({buffer.narrow(0, 2, 12).view({4, 3})}, dy, x);
  add_rows({buffer.narrow(0, 14, 4)}, dy);
  EXPECT_TRUE(close(buffer.narrow(0, 2, 12).view({4, 3}), dy.t().mm(x), 1e-12));
  EXPECT_TRUE(close(buffer.narrow(0, 14, 4), dy.sum(0), 1e-12));
  EXPECT_EQ(buffer.narrow(0, 0, 2).abs().max().item().toDouble(), 0);
  EXPECT_EQ(buffer.narrow(0, 18, 1).abs().max().item().toDouble(), 0);
}

TEST(Linear, Bfloat16GradientsAreSummedInFloat) {
  for (const at::Device device : test_devices()) {
    // bf16 cannot hold 4097.
    const at::TensorOptions halves = at::TensorOptions(at::kBFloat16).device(device);
    const at::Tensor dy = at::ones({4097, 1, 2}, halves);
    const at::Tensor x = at::ones({4097, 1, 3}, halves);
    const at::Tensor weight_gradient = at::zeros({2, 3}, halves.dtype(at::kFloat));
    const at::Tensor bias_gradient = at::zeros({2}, halves.dtype(at::kFloat));
    add_weight_gradient({weight_gradient}, dy, x);
    add_rows({bias_gradient}, dy);
    EXPECT_TRUE(close(weight_gradient, at::ones({2, 3}).mul(4097), 0));
    EXPECT_TRUE(close(bias_gradient, at::ones({2}).mul(4097), 0));
  }
}

TEST(Linear, Bfloat16IsNearFloat) {
  for (const at::Device device : test_devices()) {
    const at::Tensor x = random_tensor({9, 2, 32}, 1, at::kBFloat16, device);
    const at::Tensor weight = random_tensor({24, 32}, 2, at::kBFloat16, device);
    const at::Tensor bias = random_tensor({24}, 3, at::kBFloat16, device);
    const at::Tensor y = linear(x, weight, bias);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(
        close(y, linear(x.to(at::kFloat), weight.to(at::kFloat), bias.to(at::kFloat)), 1e-2));
    EXPECT_TRUE(close(linear_input_gradient(y, weight),
                      linear_input_gradient(y.to(at::kFloat), weight.to(at::kFloat)), 1e-2));
  }
}

TEST(Linear, ReadsThroughStrides) {
  const at::Tensor x = random_tensor({3, 5, 7}, 1).transpose(0, 1);
  const at::Tensor dy = random_tensor({4, 5, 3}, 2).permute({1, 2, 0});
  const at::Tensor gradient = at::zeros({4, 7}, at::kDouble);
  add_weight_gradient({gradient}, dy, x);
  const at::Tensor dense = at::zeros({4, 7}, at::kDouble);
  add_weight_gradient({dense}, dy.contiguous(), x.contiguous());
  EXPECT_TRUE(close(gradient, dense, 1e-12));
}

// Two chunks of what four ranks hold: each chunk's rows lie in four groups among the others.
TEST(Linear, GroupsOfRowsGoToTheirPlaces) {
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16})
    for (const bool fp8 : {false, true})
      for (const at::Device device : test_devices()) {
        constexpr std::int64_t kGroups = 4, kTokens = 16, kSamples = 2, kIn = 32, kOut = 48;
        const Fp8Scope scope(fp8);
        const at::Tensor x = random_tensor({kGroups * kTokens, kSamples, kIn}, 1, type, device);
        const at::Tensor weight = random_tensor({kOut, kIn}, 2, type, device);
        const at::Tensor bias = random_tensor({kOut}, 3, type, device);
        const at::Tensor all = at::zeros({kGroups * 2 * kTokens, kSamples, kOut}, x.options());
        const auto chunk = [&](int which) {
          return all.unflatten(0, {kGroups, 2 * kTokens}).narrow(1, which * kTokens, kTokens);
        };
        const double near = type == at::kDouble ? 1e-12 : 1e-2;
        const at::Tensor y = linear(x, weight, bias), dx = linear_input_gradient(y, weight);
        linear_into(chunk(1), x, weight, bias);
        EXPECT_TRUE(close(chunk(1).reshape(y.sizes()), y, near)) << type << fp8;
        EXPECT_EQ(chunk(0).count_nonzero().item<std::int64_t>(), 0) << "of another chunk";
        const at::Tensor back = at::zeros_like(x);
        linear_input_gradient_into(back, chunk(1), weight);
        EXPECT_TRUE(close(back, dx, near)) << type << fp8;
      }
}

TEST(Linear, AnExpertWithoutTokensAddsNothing) {
  const at::Tensor before = random_tensor({4, 3}, 1);
  const at::Tensor gradient = before.clone();
  add_weight_gradient({gradient}, at::zeros({0, 4}, at::kDouble), at::zeros({0, 3}, at::kDouble));
  EXPECT_TRUE(identical(gradient, before));
  EXPECT_EQ(linear(at::zeros({0, 3}, at::kDouble), before).size(0), 0);
}

}  // namespace
}  // namespace braid::ops
