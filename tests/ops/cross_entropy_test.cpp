#include "runtime/ops/cross_entropy.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "runtime/ops/autograd.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

constexpr double kScale = 0.37;

at::Tensor labels_of(std::initializer_list<std::int64_t> labels, at::Device device) {
  return at::tensor(at::ArrayRef<std::int64_t>(labels), at::kLong).to(device);
}

// The losses of all rows, 0 where the label is ignored, by log_softmax.
at::Tensor losses_written_out(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor ignored = labels.eq(kIgnoreLabel);
  const at::Tensor column = labels.masked_fill(ignored, 0).unsqueeze(1);
  return at::log_softmax(logits, 1).gather(1, column).squeeze(1).neg().masked_fill(ignored, 0);
}

struct Result {
  at::Tensor losses, gradient;
};

// What ranks do that hold `width` columns each: three local steps, reductions between them. The
// columns past the vocabulary are padding, full of what must not count.
Result over_slices(const at::Tensor& logits, const at::Tensor& labels, std::int64_t width,
                   std::int64_t slices) {
  const std::int64_t vocabulary = logits.size(1);
  const at::Tensor padded =
      at::full({logits.size(0), slices * width}, 1e4, logits.options()).contiguous();
  padded.narrow(1, 0, vocabulary).copy_(logits);
  std::vector<at::Tensor> parts;
  std::vector<VocabularySlice> held;
  for (std::int64_t i = 0; i < slices; ++i) {
    parts.push_back(padded.narrow(1, i * width, width).clone());
    held.push_back({i * width, std::clamp<std::int64_t>(vocabulary - i * width, 0, width)});
  }
  at::Tensor max = logits_max(parts[0], held[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    max = at::maximum(max, logits_max(parts[i], held[i]));
  }
  at::Tensor sums = exp_sums(parts[0], max, labels, held[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    sums = sums.add(exp_sums(parts[i], max, labels, held[i]));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor gradient = logits_gradient_(parts[i], max, sums, labels, held[i], kScale);
    EXPECT_TRUE(gradient.is_same(parts[i]));
  }
  const at::Tensor gradient = at::cat(parts, 1);
  const std::int64_t padding = slices * width - vocabulary;
  if (padding > 0) {
    EXPECT_EQ(gradient.narrow(1, vocabulary, padding).abs().max().item().toDouble(), 0);
  }
  return {row_losses(sums, labels), gradient.narrow(1, 0, vocabulary)};
}

TEST(CrossEntropy, LossAndGradientAreAutogradsOverAnySlices) {
  struct Slicing {
    const char* fact;
    std::int64_t width, slices;
  };
  const Slicing slicings[] = {
      {"one rank holds all", 11, 1}, {"one rank, padded", 16, 1},       {"two ranks, padded", 6, 2},
      {"three ranks, padded", 4, 3}, {"a rank of padding alone", 4, 4}, {"a column each", 1, 11},
  };
  for (const at::Device device : test_devices()) {
    const at::Tensor logits = random_tensor({7, 11}, 1, at::kDouble, device).mul(5);
    // The first and last column of a slice, two ignored rows.
    const at::Tensor labels = labels_of({0, 10, kIgnoreLabel, 5, 6, kIgnoreLabel, 3}, device);
    Recorded reference(
        [&](const std::vector<at::Tensor>& in) { return losses_written_out(in[0], labels); },
        {logits});
    const at::Tensor expected = reference.backward(at::full({7}, kScale, logits.options()))[0];
    for (const Slicing& s : slicings) {
      const Result result = over_slices(logits, labels, s.width, s.slices);
      EXPECT_TRUE(close(result.losses, reference.output(), 1e-10)) << s.fact;
      EXPECT_TRUE(close(result.gradient, expected, 1e-10)) << s.fact;
      EXPECT_EQ(result.losses[2].item().toDouble(), 0) << s.fact;
      EXPECT_EQ(result.gradient[5].abs().max().item().toDouble(), 0) << s.fact;
    }
  }
}

TEST(CrossEntropy, HugeLogitsDoNotOverflow) {
  const at::Device cpu(at::kCPU);
  const at::Tensor logits = at::tensor({1e4, -1e4, 9999.0, 0.0, 1e4, 1e4}).view({2, 3});
  const Result result = over_slices(logits.to(at::kFloat), labels_of({0, 1}, cpu), 2, 2);
  EXPECT_NEAR(result.losses[0].item().toDouble(), std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(result.losses[1].item().toDouble(), std::log(2.0), 1e-6);
  EXPECT_TRUE(result.gradient.isfinite().all().item().toBool());
}

TEST(CrossEntropy, APaddingSliceHasNoMaximum) {
  const at::Tensor max = logits_max(at::zeros({2, 3}, at::kBFloat16), {.first = 9, .real = 0});
  EXPECT_EQ(max.scalar_type(), at::kFloat);
  EXPECT_TRUE(max.isneginf().all().item().toBool());
}

TEST(CrossEntropy, Bfloat16HasStatisticsInFloat) {
  for (const at::Device device : test_devices()) {
    const at::Tensor logits = random_tensor({9, 200}, 1, at::kBFloat16, device);
    const at::Tensor labels = labels_of({0, 199, 7, 100, 3, kIgnoreLabel, 50, 64, 128}, device);
    const Result halves = over_slices(logits, labels, 70, 3);
    const Result whole = over_slices(logits.to(at::kFloat), labels, 200, 1);
    EXPECT_EQ(halves.losses.scalar_type(), at::kFloat);
    EXPECT_EQ(halves.gradient.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(close(halves.losses, whole.losses, 1e-5));  // logits are exact in both
    EXPECT_TRUE(close(halves.gradient, whole.gradient, 1e-2));
  }
}

TEST(CrossEntropy, RowsThatAreTakenInTurnsGiveTheSame) {
  // Wide enough that only a few rows are worked on at a time; the rows are multiples of one.
  const std::int64_t width = (std::int64_t{1} << 22) + 5;
  const std::int64_t rows = 7;
  const at::Tensor one = at::arange(width, at::TensorOptions(at::kFloat)).remainder(97).div(50);
  at::Tensor logits = at::zeros({rows, width}, at::kBFloat16);
  for (std::int64_t row = 0; row < rows; ++row) {
    logits[row].copy_(one.mul(1 + static_cast<double>(row)));
  }
  const at::Tensor labels = at::arange(rows, at::TensorOptions(at::kLong)).mul(11);
  const VocabularySlice all{.first = 0, .real = width};
  const at::Tensor max = logits_max(logits, all);
  const at::Tensor sums = exp_sums(logits, max, labels, all);
  std::vector<at::Tensor> alone;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto only = [&](const at::Tensor& x) { return x.narrow(0, row, 1); };
    EXPECT_TRUE(close(only(sums), exp_sums(only(logits), only(max), only(labels), all), 1e-6));
    alone.push_back(
        logits_gradient_(only(logits).clone(), only(max), only(sums), only(labels), all, 1e6));
  }
  logits_gradient_(logits, max, sums, labels, all, 1e6);
  EXPECT_TRUE(identical(logits, at::cat(alone, 0)));
}

}  // namespace
}  // namespace braid::ops
