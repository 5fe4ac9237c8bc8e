// The norms' kernels against the operators in fp64 on the CPU.

#include <ATen/ops/empty.h>

#include "runtime/ops/fused.h"
#include "runtime/ops/norm.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

constexpr double kEpsilon = 1e-3;

// Rows × width: a lane of packs, odd widths, a row in several packs a thread, more rows than
// blocks.
const std::vector<std::vector<std::int64_t>> kShapes = {
    {5, 8}, {3, 2, 64}, {7, 33}, {2, 3}, {2, 1000}, {1, 2056}, {2, 9000}, {41, 96}, {0, 16}};

class CudaNorm : public KernelTest {};
BRAID_KERNEL_TYPES(CudaNorm);

std::int64_t longest(at::ScalarType type) {
  return kernels::longest_norm(type == at::kFloat ? kernels::Type::fp32 : kernels::Type::bf16,
                               true);
}

TEST_P(CudaNorm, ForwardIsTheExactNormOfTheSum) {
  for (const std::vector<std::int64_t>& shape : kShapes) {
    const std::int64_t width = shape.back();
    if (width > longest(type())) continue;
    const at::Tensor x = random(shape, 1).mul(3).add(1);
    const at::Tensor added = random(shape, 2);
    const at::Tensor weight = random({width}, 3), bias = random({width}, 4);
    for (const at::Tensor& more : {at::Tensor(), added}) {
      const at::Tensor sum = more.defined() ? x.add(more) : x;
      const auto rms = fused::norm(fused::NormKind::rms, x, more, weight, {}, kEpsilon);
      ASSERT_TRUE(rms) << width;
      const RmsNorm expected = rms_norm(exact(sum), exact(weight), kEpsilon);
      EXPECT_TRUE(close(rms->y, expected.y, tolerance())) << width;
      EXPECT_TRUE(close(rms->statistics, expected.statistics, 2e-5)) << width;
      EXPECT_TRUE(!more.defined() || identical(rms->sum, sum)) << width;

      const auto layer = fused::norm(fused::NormKind::layer, x, more, weight, bias, kEpsilon);
      ASSERT_TRUE(layer) << width;
      const LayerNorm centred = layer_norm(exact(sum), exact(weight), exact(bias), kEpsilon);
      EXPECT_TRUE(close(layer->y, centred.y, tolerance())) << width;
      EXPECT_TRUE(close(layer->statistics, centred.statistics, 2e-5)) << width;
    }
  }
}

TEST_P(CudaNorm, BackwardIsTheExactGradient) {
  for (const std::vector<std::int64_t>& shape : kShapes) {
    const std::int64_t width = shape.back();
    if (width > longest(type())) continue;
    const at::Tensor x = random(shape, 1).mul(3).add(1), dy = random(shape, 2);
    const at::Tensor residual = random(shape, 3);
    const at::Tensor weight = random({width}, 4);
    for (const bool layer : {false, true}) {
      const auto kind = layer ? fused::NormKind::layer : fused::NormKind::rms;
      const auto normed = fused::norm(kind, x, {}, weight, {}, kEpsilon);
      ASSERT_TRUE(normed);
      for (const at::Tensor& round : {at::Tensor(), residual}) {
        const at::Tensor exact_round = round.defined() ? exact(round) : round;
        const at::Tensor used_up = dy.clone();
        const auto found = fused::norm_backward(kind, used_up, x, normed->statistics, weight,
                                                {.residual = round, .again = used_up});
        EXPECT_TRUE(identical(used_up, normed->y)) << width << " " << layer;
        ASSERT_TRUE(found) << width;
        const NormGradients expected =
            layer
                ? layer_norm_backward(exact(dy), exact(x),
                                      layer_norm(exact(x), exact(weight), {}, kEpsilon).statistics,
                                      exact(weight), {.residual = exact_round})
                : rms_norm_backward(exact(dy), exact(x),
                                    rms_norm(exact(x), exact(weight), kEpsilon).statistics,
                                    exact(weight), {.residual = exact_round});
        EXPECT_TRUE(close(found->dx, expected.dx, tolerance())) << width << " " << layer;
        // The sums are fp32 whatever the type.
        EXPECT_TRUE(close(found->rows.sum(0), expected.rows, 2e-5)) << width << " " << layer;
      }
    }
  }
}

TEST_P(CudaNorm, WeightsThatAreNotAlignedAreTakenOneByOne) {
  const at::Tensor x = random({5, 64}, 1), dy = random({5, 64}, 2);
  const at::Tensor weight = random({65}, 3).narrow(0, 1, 64);
  const auto normed = fused::norm(fused::NormKind::rms, x, {}, weight, {}, kEpsilon);
  ASSERT_TRUE(normed);
  EXPECT_TRUE(close(normed->y, rms_norm(exact(x), exact(weight), kEpsilon).y, tolerance()));
  EXPECT_TRUE(fused::norm_backward(fused::NormKind::rms, dy, x, normed->statistics, weight, {}));
}

}  // namespace
}  // namespace braid::ops
