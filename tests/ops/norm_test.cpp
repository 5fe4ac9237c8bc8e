#include "runtime/ops/norm.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>

#include "runtime/ops/autograd.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

constexpr double kEpsilon = 1e-3;  // large enough to be seen if it were misplaced

at::Tensor mean_of_row(const at::Tensor& x) { return at::mean(x, at::IntArrayRef{-1}, true); }

at::Tensor layer_norm_written_out(const std::vector<at::Tensor>& in) {
  const at::Tensor centred = at::sub(in[0], mean_of_row(in[0]));
  const at::Tensor sigma = mean_of_row(centred.pow(2)).add(kEpsilon).sqrt();
  const at::Tensor y = at::mul(centred.div(sigma), in[1]);
  return in[2].defined() ? y.add(in[2]) : y;
}

at::Tensor rms_norm_written_out(const std::vector<at::Tensor>& in) {
  return at::mul(in[0].div(mean_of_row(in[0].pow(2)).add(kEpsilon).sqrt()), in[1]);
}

at::Tensor sum_of_rows(const NormGradients& gradients) {
  return gradients.rows.reshape({-1, gradients.rows.size(-1)}).sum(0);
}

const std::vector<std::vector<std::int64_t>> kShapes = {
    {5, 3, 7}, {1, 1, 2}, {4, 33}, {3, 2, 4, 8}, {2, 1, 300}};

TEST(LayerNorm, ForwardAndGradientsAreAutograds) {
  for (const at::Device device : test_devices()) {
    for (const std::vector<std::int64_t>& shape : kShapes) {
      const std::int64_t width = shape.back();
      const at::Tensor x = random_tensor(shape, 1, at::kDouble, device).mul(3).add(1);
      const at::Tensor weight = random_tensor({width}, 2, at::kDouble, device);
      const at::Tensor bias = random_tensor({width}, 3, at::kDouble, device);
      const at::Tensor dy = random_tensor(shape, 4, at::kDouble, device);

      Recorded reference(layer_norm_written_out, {x, weight, bias});
      const LayerNorm norm = layer_norm(x, weight, bias, kEpsilon);
      EXPECT_TRUE(close(norm.y, reference.output(), 1e-10)) << width;
      EXPECT_TRUE(close(norm.statistics.narrow(-1, 0, 1), mean_of_row(x), 1e-10)) << width;

      const std::vector<at::Tensor> expected = reference.backward(dy);
      const NormGradients found = layer_norm_backward(dy, x, norm.statistics, weight);
      EXPECT_TRUE(close(found.dx, expected[0], 1e-10)) << width;
      EXPECT_TRUE(close(sum_of_rows(found), at::cat({expected[1], expected[2]}), 1e-10)) << width;
    }
  }
}

TEST(LayerNorm, HasGradientsWithoutABias) {
  const at::Tensor x = random_tensor({5, 3, 7}, 1);
  const at::Tensor weight = random_tensor({7}, 2);
  const at::Tensor dy = random_tensor({5, 3, 7}, 3);
  const LayerNorm norm = layer_norm(x, weight, {}, kEpsilon);
  Recorded reference(layer_norm_written_out, {x, weight, at::Tensor()});
  EXPECT_TRUE(close(norm.y, reference.output(), 1e-10));
  const std::vector<at::Tensor> expected = reference.backward(dy);
  const NormGradients found = layer_norm_backward(dy, x, norm.statistics, weight);
  EXPECT_TRUE(close(found.dx, expected[0], 1e-10));
  EXPECT_TRUE(close(sum_of_rows(found).narrow(0, 0, 7), expected[1], 1e-10));
}

TEST(RmsNorm, ForwardAndGradientsAreAutograds) {
  for (const at::Device device : test_devices()) {
    for (const std::vector<std::int64_t>& shape : kShapes) {
      const std::int64_t width = shape.back();
      const at::Tensor x = random_tensor(shape, 1, at::kDouble, device).mul(3).add(1);
      const at::Tensor weight = random_tensor({width}, 2, at::kDouble, device);
      const at::Tensor dy = random_tensor(shape, 4, at::kDouble, device);

      Recorded reference(rms_norm_written_out, {x, weight});
      const RmsNorm norm = rms_norm(x, weight, kEpsilon);
      EXPECT_TRUE(close(norm.y, reference.output(), 1e-10)) << width;
      EXPECT_TRUE(close(norm.statistics, mean_of_row(x.pow(2)).add(kEpsilon).rsqrt(), 1e-10))
          << width;

      const std::vector<at::Tensor> expected = reference.backward(dy);
      const NormGradients found = rms_norm_backward(dy, x, norm.statistics, weight);
      EXPECT_TRUE(close(found.dx, expected[0], 1e-10)) << width;
      EXPECT_TRUE(close(sum_of_rows(found), expected[1], 1e-10)) << width;
    }
  }
}

TEST(RmsNorm, Bfloat16RoundsTheNormalisedValueBeforeTheWeight) {
  const at::Tensor x = random_tensor({7, 2, 64}, 1, at::kBFloat16);
  const at::Tensor weight = random_tensor({64}, 2, at::kBFloat16);
  const at::Tensor exact = x.to(at::kFloat);
  const at::Tensor normalised =
      exact.mul(mean_of_row(exact.pow(2)).add(kEpsilon).rsqrt()).to(at::kBFloat16);
  EXPECT_TRUE(identical(rms_norm(x, weight, kEpsilon).y, normalised.mul(weight)));
}

TEST(Norm, Bfloat16IsNearFloatWithStatisticsInFloat) {
  for (const at::Device device : test_devices()) {
    const at::Tensor x = random_tensor({9, 2, 64}, 1, at::kBFloat16, device);
    const at::Tensor weight = random_tensor({64}, 2, at::kBFloat16, device);
    const at::Tensor bias = random_tensor({64}, 3, at::kBFloat16, device);
    const at::Tensor dy = random_tensor({9, 2, 64}, 4, at::kBFloat16, device);
    const at::Tensor x32 = x.to(at::kFloat);
    const at::Tensor w32 = weight.to(at::kFloat);
    const at::Tensor dy32 = dy.to(at::kFloat);
    const LayerNorm layer = layer_norm(x, weight, bias, kEpsilon);
    const LayerNorm layer32 = layer_norm(x32, w32, bias.to(at::kFloat), kEpsilon);
    EXPECT_EQ(layer.y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(layer.statistics.scalar_type(), at::kFloat);
    EXPECT_TRUE(close(layer.y, layer32.y, 1e-2));
    EXPECT_TRUE(close(layer.statistics, layer32.statistics, 1e-6));
    const auto expect_near = [](const NormGradients& found, const NormGradients& expected) {
      EXPECT_EQ(found.dx.scalar_type(), at::kBFloat16);
      EXPECT_EQ(found.rows.scalar_type(), at::kFloat);
      EXPECT_TRUE(close(found.dx, expected.dx, 1e-2));
      EXPECT_TRUE(close(sum_of_rows(found), sum_of_rows(expected), 1e-2));
    };
    expect_near(layer_norm_backward(dy, x, layer.statistics, weight),
                layer_norm_backward(dy32, x32, layer32.statistics, w32));

    const RmsNorm rms = rms_norm(x, weight, kEpsilon);
    const RmsNorm rms32 = rms_norm(x32, w32, kEpsilon);
    EXPECT_EQ(rms.y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(rms.statistics.scalar_type(), at::kFloat);
    EXPECT_TRUE(close(rms.y, rms32.y, 1e-2));
    expect_near(rms_norm_backward(dy, x, rms.statistics, weight),
                rms_norm_backward(dy32, x32, rms32.statistics, w32));
  }
}

TEST(Norm, BackwardMakesYAgain) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-6 : 1e-2;
    const at::Tensor x = random_tensor({3, 2, 24}, 1, type).mul(3).add(1);
    const at::Tensor dy = random_tensor({3, 2, 24}, 2, type), weight = random_tensor({24}, 3, type);
    const at::Tensor bias = random_tensor({24}, 4, type);
    // In place of the gradient, which is read first.
    const LayerNorm layer = layer_norm(x, weight, bias, 1e-5);
    at::Tensor used_up = dy.clone();
    const at::Tensor layer_dx =
        layer_norm_backward(used_up, x, layer.statistics, weight, {.again = used_up, .bias = bias})
            .dx;
    EXPECT_TRUE(close(used_up, layer.y, tolerance)) << c10::toString(type);
    EXPECT_TRUE(identical(layer_dx, layer_norm_backward(dy, x, layer.statistics, weight).dx));
    const RmsNorm rms = rms_norm(x, weight, 1e-5);
    used_up = dy.clone();
    const at::Tensor rms_dx =
        rms_norm_backward(used_up, x, rms.statistics, weight, {.again = used_up}).dx;
    EXPECT_TRUE(close(used_up, rms.y, tolerance)) << c10::toString(type);
    EXPECT_TRUE(identical(rms_dx, rms_norm_backward(dy, x, rms.statistics, weight).dx));
  }
}

}  // namespace
}  // namespace braid::ops
