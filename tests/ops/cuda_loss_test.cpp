// The kernels of cross-entropy against the operators in fp64 on the CPU.

#include <ATen/ops/cat.h>
#include <ATen/ops/log.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randint.h>

#include "runtime/ops/cross_entropy.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaLoss : public KernelTest {
 protected:
  at::Tensor labels(std::int64_t rows, std::int64_t vocabulary) const {
    at::Tensor made = at::randint(vocabulary, {rows}, at::detail::createCPUGenerator(7), at::kLong);
    if (rows > 2) made[1] = kIgnoreLabel;
    return made.to(device);
  }
};
BRAID_KERNEL_TYPES(CudaLoss);

constexpr double kScale = 0.25;

struct Expected {
  at::Tensor losses, gradient;
};
Expected in_steps(const at::Tensor& logits, const at::Tensor& labels,
                  const VocabularySlice& slice) {
  const at::Tensor max = logits_max(logits, slice);
  const at::Tensor sums = exp_sums(logits, max, labels, slice);
  return {row_losses(sums, labels),
          logits_gradient_(logits.clone(), max, sums, labels, slice, kScale)};
}

struct Shape {
  std::int64_t rows, width, real;
};
// One column, a few, a row that ends inside a pack, rows that begin anywhere, several packs a
// thread, many rows a block.
constexpr Shape kShapes[] = {{3, 1, 1},         {5, 8, 8},          {7, 20, 17},     {9, 33, 33},
                             {4, 1000, 1000},   {3, 9001, 9001},    {41, 1000, 995}, {40, 8, 3},
                             {2, 70000, 69990}, {3, 160000, 159990}};

TEST_P(CudaLoss, LossesAndGradientsInOneGoAreExact) {
  for (const Shape& s : kShapes) {
    at::Tensor logits = random({s.rows, s.width}, 1).mul(4);
    // What stands in padding must not be seen.
    if (s.real < s.width) logits.narrow(1, s.real, s.width - s.real).fill_(1e4);
    const at::Tensor label = labels(s.rows, s.real);
    const VocabularySlice slice{.first = 0, .real = s.real};
    const Expected expected = in_steps(exact(logits), label.to(at::kCPU), slice);
    const auto losses = cross_entropy_(logits, label, slice, kScale);
    ASSERT_TRUE(losses) << s.width;
    EXPECT_TRUE(close(*losses, expected.losses, 2e-5)) << s.width;
    EXPECT_TRUE(close(logits, expected.gradient, tolerance())) << s.width;
  }
}

TEST_P(CudaLoss, SlicesOfAVocabularyGiveTheWhole) {
  const std::int64_t rows = 6, width = 72, part = 40;
  const at::Tensor whole = random({rows, width}, 1).mul(4);
  const at::Tensor label = labels(rows, width);
  const Expected expected = in_steps(exact(whole), label.to(at::kCPU), {.first = 0, .real = width});
  // The second slice ends in padding; a third one is nothing else.
  const at::Tensor padding = random({rows, part}, 2).mul(100);
  std::vector<at::Tensor> logits = {
      whole.narrow(1, 0, part).contiguous(),
      at::cat({whole.narrow(1, part, width - part), padding.narrow(1, 0, 2 * part - width)}, 1),
      padding};
  const VocabularySlice slices[] = {{0, part}, {part, width - part}, {2 * part, 0}};
  at::Tensor max, sums;
  std::vector<SliceStatistics> own;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto found = slice_statistics(logits[i], label, slices[i]);
    ASSERT_TRUE(found);
    own.push_back(*found);
    max = i == 0 ? found->max : at::max(max, found->max);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const at::Tensor mine = against(own[i], max, label, slices[i]);
    sums = i == 0 ? mine : sums.add(mine);
  }
  EXPECT_TRUE(close(row_losses(sums, label), expected.losses, 2e-5));
  for (std::size_t i = 0; i < 3; ++i)
    logits_gradient_(logits[i], max, sums, label, slices[i], kScale);
  EXPECT_TRUE(close(at::cat({logits[0], logits[1]}, 1).narrow(1, 0, width), expected.gradient,
                    tolerance()));
  EXPECT_EQ(logits[1].narrow(1, width - part, 2 * part - width).abs().max().item<double>(), 0);
  EXPECT_EQ(logits[2].abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace braid::ops
