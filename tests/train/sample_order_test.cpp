#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "runtime/train/data.h"

namespace braid::train {
namespace {

std::vector<std::int64_t> epoch(const SampleOrder& order, std::int64_t samples, int number) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < samples; ++i) indices.push_back(order.at(number * samples + i));
  return indices;
}

TEST(SampleOrder, EveryEpochVisitsEachSampleOnce) {
  for (std::int64_t samples = 1; samples <= 300; ++samples) {
    const SampleOrder order(samples, 7, true);
    for (int number = 0; number < 3; ++number) {
      const std::vector<std::int64_t> visited = epoch(order, samples, number);
      const std::set<std::int64_t> distinct(visited.begin(), visited.end());
      ASSERT_EQ(distinct.size(), visited.size()) << samples << " samples, epoch " << number;
      ASSERT_EQ(*distinct.begin(), 0);
      ASSERT_EQ(*distinct.rbegin(), samples - 1);
    }
  }
}

TEST(SampleOrder, EpochsAndSeedsDiffer) {
  const SampleOrder order(1000, 7, true);
  const std::vector<std::int64_t> first = epoch(order, 1000, 0);
  EXPECT_NE(epoch(order, 1000, 1), first);
  EXPECT_NE(epoch(SampleOrder(1000, 8, true), 1000, 0), first);
  EXPECT_EQ(epoch(SampleOrder(1000, 7, true), 1000, 0), first);
}

// A later version that shuffled otherwise would repeat and skip samples of a resumed run.
TEST(SampleOrder, IsTheSameInEveryVersion) {
  EXPECT_EQ(epoch(SampleOrder(8, 1, true), 8, 0),
            (std::vector<std::int64_t>{1, 7, 4, 0, 6, 2, 3, 5}));
  EXPECT_EQ(epoch(SampleOrder(8, 1, true), 8, 1),
            (std::vector<std::int64_t>{2, 5, 6, 1, 0, 7, 3, 4}));
}

TEST(SampleOrder, WithoutShufflingItCounts) {
  const SampleOrder order(3, 7, false);
  EXPECT_EQ(order.at(0), 0);
  EXPECT_EQ(order.at(2), 2);
  EXPECT_EQ(order.at(3), 0);
  EXPECT_EQ(order.at(3'000'000'000'001), 1);
}

TEST(SampleOrder, EndlessDatasetsPassThrough) {
  const SampleOrder order(0, 7, true);
  EXPECT_EQ(order.at(0), 0);
  EXPECT_EQ(order.at(123'456'789'012), 123'456'789'012);
}

// Binomial: 20,000 keys over n places; bounds of five standard deviations.
TEST(Permutation, EveryPlaceIsEquallyLikely) {
  constexpr int kKeys = 20'000;
  struct Case {
    const char* fact;
    std::int64_t size;
    double bound;
  };
  for (const Case& c :
       {Case{"a third each", 3, 333}, {"a fifth each", 5, 283}, {"a seventeenth each", 17, 167}}) {
    for (const std::int64_t index : {std::int64_t{0}, c.size - 1}) {
      std::vector<int> counts(static_cast<std::size_t>(c.size));
      for (std::uint64_t key = 0; key < kKeys; ++key)
        ++counts[static_cast<std::size_t>(Permutation(c.size, mix(key)).at(index))];
      for (const int count : counts)
        EXPECT_NEAR(count, kKeys / static_cast<double>(c.size), c.bound)
            << c.fact << ", index " << index;
    }
  }
}

TEST(Permutation, NeighboursAreScattered) {
  constexpr std::int64_t kSize = 100'000;
  const Permutation permutation(kSize, 42);
  double distance = 0;
  for (std::int64_t i = 1; i < kSize; ++i)
    distance += static_cast<double>(std::abs(permutation.at(i) - permutation.at(i - 1)));
  // The mean distance of two random places is a third of the size.
  EXPECT_NEAR(distance / kSize / kSize, 1.0 / 3, 0.005);
}

TEST(Permutation, HoldsBeyond32Bits) {
  constexpr std::int64_t kSize = (std::int64_t{1} << 62) + 1;
  const Permutation permutation(kSize, 42);
  std::set<std::int64_t> images;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t image = permutation.at(kSize - 1 - i);
    EXPECT_TRUE(image >= 0 && image < kSize);
    images.insert(image);
  }
  EXPECT_EQ(images.size(), 1000U);
}

}  // namespace
}  // namespace braid::train
