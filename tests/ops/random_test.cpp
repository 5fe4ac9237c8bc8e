#include "runtime/ops/random.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "runtime/ops/autograd.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

constexpr std::uint64_t kKey = 0x0123456789ABCDEF;

at::Tensor indices(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, at::TensorOptions(at::kLong));
}

// splitmix64's output `index` steps after the state `key`, with unsigned integers.
double uniform_by_hand(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  z = z ^ (z >> 31U);
  return std::ldexp(static_cast<double>(z >> 11U), -53);
}

TEST(Random, UniformIsSplitmix64) {
  // The published first outputs for the state 0: e220a8397b1dcdaf, 6e789e6aa1b965f4.
  EXPECT_EQ(uniform_at(0, indices(0, 2))[0].item().toDouble(), 0x1.c4415072f63b9p-1);
  EXPECT_EQ(uniform_at(0, indices(0, 2))[1].item().toDouble(), 0x1.b9e279aa86e58p-2);
  const std::int64_t far = std::numeric_limits<std::int64_t>::max() - 50;
  for (const std::int64_t first :
       {std::int64_t{0}, std::int64_t{1} << 40, far, std::int64_t{-50}}) {
    const at::Tensor drawn = uniform_at(kKey, indices(first, 50));
    for (std::int64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(drawn[i].item().toDouble(),
                uniform_by_hand(kKey, static_cast<std::uint64_t>(first + i)))
          << first + i;
    }
  }
}

TEST(Random, AnySliceInAnyShapeHasTheSameBits) {
  const at::Tensor uniform = uniform_at(kKey, indices(0, 5000));
  const at::Tensor normal = normal_at(kKey, indices(0, 5000));
  for (const std::int64_t first : {0, 1, 2, 3, 5, 7, 64, 1001}) {
    for (const std::int64_t count : {1, 2, 3, 4, 7, 8, 9, 31, 100, 3999}) {
      EXPECT_TRUE(
          identical(uniform_at(kKey, indices(first, count)), uniform.narrow(0, first, count)))
          << first << " + " << count;
      EXPECT_TRUE(identical(normal_at(kKey, indices(first, count)), normal.narrow(0, first, count)))
          << first << " + " << count;
    }
  }
  // Enough for ATen to give each thread a part.
  EXPECT_TRUE(identical(normal_at(kKey, indices(12345, 70001)),
                        normal_at(kKey, indices(0, 100000)).narrow(0, 12345, 70001)));
  const at::Tensor matrix = indices(0, 5000).view({50, 100});
  EXPECT_TRUE(identical(normal_at(kKey, matrix.t()), normal.view({50, 100}).t()));
  EXPECT_TRUE(
      identical(normal_at(kKey, matrix.narrow(1, 3, 37)), normal.view({50, 100}).narrow(1, 3, 37)));
}

TEST(Random, TheGpuDrawsTheSameNumbers) {
  for (const at::Device device : test_devices()) {
    const at::Tensor there = indices(0, 1000).to(device);
    EXPECT_TRUE(identical(uniform_at(kKey, there).cpu(), uniform_at(kKey, indices(0, 1000))));
    EXPECT_TRUE(close(normal_at(kKey, there), normal_at(kKey, indices(0, 1000)), 1e-14));
  }
}

TEST(Random, UniformFillsTheIntervalEvenly) {
  const std::int64_t count = 1 << 18;
  const at::Tensor drawn = uniform_at(kKey, indices(0, count));
  EXPECT_GE(drawn.min().item().toDouble(), 0);
  EXPECT_LT(drawn.max().item().toDouble(), 1);
  EXPECT_NEAR(drawn.mean().item().toDouble(), 0.5, 4 / std::sqrt(12.0 * count));
  const std::int64_t bins = 256;
  const at::Tensor hits = drawn.mul(bins).floor().to(at::kLong).bincount({}, bins).to(at::kDouble);
  const double expected = static_cast<double>(count) / bins;
  const double chi_square = hits.sub(expected).pow(2).div(expected).sum().item().toDouble();
  EXPECT_NEAR(chi_square, 255, 5 * std::sqrt(2.0 * 255));
}

TEST(Random, NormalHasTheMomentsOfItsName) {
  const std::int64_t count = 1 << 18;
  const at::Tensor drawn = normal_at(kKey, indices(0, count));
  const double sigma = 1 / std::sqrt(static_cast<double>(count));
  EXPECT_TRUE(drawn.isfinite().all().item().toBool());
  EXPECT_NEAR(drawn.mean().item().toDouble(), 0, 4 * sigma);
  EXPECT_NEAR(drawn.pow(2).mean().item().toDouble(), 1, 4 * std::sqrt(2.0) * sigma);
  EXPECT_NEAR(drawn.pow(3).mean().item().toDouble(), 0, 4 * std::sqrt(15.0) * sigma);
  EXPECT_NEAR(drawn.pow(4).mean().item().toDouble(), 3, 4 * std::sqrt(96.0) * sigma);
  const at::Tensor next = normal_at(kKey, indices(1, count));
  EXPECT_NEAR(drawn.mul(next).mean().item().toDouble(), 0, 4 * sigma);
}

TEST(Random, NormalIsPinned) {
  // A change of these changes every model's initial weights.
  const at::Tensor expected =
      at::tensor({2.0370557597025325, 1.0233630244236747, -0.56684682036768452}, at::kDouble);
  EXPECT_TRUE(
      close(normal_at(random_key(7, "layers.0.attention.q"), indices(0, 3)), expected, 1e-14));
}

TEST(Random, KeysDifferBySeedAndName) {
  EXPECT_EQ(random_key(7, "layers.0.attention.q"), 0x269859C623CEDE8DU);
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (int layer = 0; layer < 50; ++layer) {
      keys.insert(random_key(seed, "layers." + std::to_string(layer)));
    }
  }
  EXPECT_EQ(keys.size(), 2500U);
}

TEST(Random, StreamsOfDifferentKeysAreUnrelated) {
  const std::int64_t count = 1 << 16;
  const at::Tensor a = normal_at(random_key(1, "a"), indices(0, count));
  for (const auto& [seed, name] : {std::pair{1, "b"}, std::pair{2, "a"}}) {
    const at::Tensor b =
        normal_at(random_key(static_cast<std::uint64_t>(seed), name), indices(0, count));
    EXPECT_NEAR(a.mul(b).mean().item().toDouble(), 0, 4 / std::sqrt(static_cast<double>(count)));
  }
}

TEST(Dropout, KeepsAndScalesTheShareThatIsLeft) {
  for (const at::Device device : test_devices()) {
    const at::Tensor where = indices(0, 1 << 16).view({64, 4, 256}).to(device);
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const at::Tensor x = at::ones({64, 4, 256}, at::TensorOptions(type).device(device));
      const at::Tensor y = dropout(x, 0.2, kKey, where);
      EXPECT_EQ(y.scalar_type(), type);
      const at::Tensor kept = uniform_at(kKey, where).ge(0.2);
      EXPECT_TRUE(close(y, kept.to(at::kDouble).div(0.8).to(type), 1e-15));
      EXPECT_NEAR(kept.to(at::kDouble).mean().item().toDouble(), 0.8,
                  4 * std::sqrt(0.16 / (1 << 16)));
    }
  }
}

TEST(Dropout, ItsGradientIsItself) {
  const at::Tensor x = random_tensor({5, 3, 7}, 1);
  const at::Tensor dy = random_tensor({5, 3, 7}, 2);
  const at::Tensor where = indices(1000, 105).view({5, 3, 7});
  Recorded reference(
      [&](const std::vector<at::Tensor>& in) {
        return in[0].mul(uniform_at(kKey, where).ge(0.3)).div(0.7);
      },
      {x});
  EXPECT_TRUE(close(dropout(x, 0.3, kKey, where), reference.output(), 1e-12));
  EXPECT_TRUE(close(dropout(dy, 0.3, kKey, where), reference.backward(dy)[0], 1e-12));
}

TEST(Dropout, RowsThatAreTakenInTurnsGiveTheSame) {
  const at::Tensor where = indices(0, 5 << 20).view({5, 1 << 20});  // more than are drawn at once
  const at::Tensor x = at::ones({5, 1 << 20}, at::kBFloat16);
  const at::Tensor y = dropout(x, 0.5, kKey, where);
  for (std::int64_t row = 0; row < 5; ++row) {
    EXPECT_TRUE(identical(y[row], dropout(x[row], 0.5, kKey, where[row]))) << row;
  }
}

TEST(Dropout, ProbabilityZeroKeepsAllAndOneKeepsNothing) {
  const at::Tensor x = random_tensor({4, 5}, 1);
  EXPECT_TRUE(identical(dropout(x, 0, kKey, indices(0, 20).view({4, 5})), x));
  EXPECT_EQ(dropout(x, 1, kKey, indices(0, 20).view({4, 5})).abs().max().item().toDouble(), 0);
}

}  // namespace
}  // namespace braid::ops
