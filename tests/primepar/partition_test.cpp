#include "planner/primepar/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace braid {
namespace {

constexpr Rotation kPaper[] = {Rotation::paper};
constexpr Rotation kPair[] = {Rotation::plus, Rotation::minus};

TEST(Partitions, ALinearOperatorHasAsManyAsTheSpecificationCounts) {
  constexpr std::size_t kAll[] = {4, 17, 72, 306, 1300, 5524};  // on 2, 4, … 64 devices
  constexpr std::size_t kOneSquare[] = {4, 17, 72, 305, 1288, 5425};
  for (int bits = 1; bits <= 6; ++bits) {
    EXPECT_EQ(partitions(bits, kLinearDims, kPaper, 3).size(), kAll[bits - 1]) << bits << " bits";
    EXPECT_EQ(partitions(bits, kLinearDims, kPaper).size(), kOneSquare[bits - 1]);
  }
}

TEST(Partitions, OperatorsWithoutASquareHaveAPowerOfTheirDimensions) {
  std::size_t threes = 1, fours = 1;
  for (int bits = 1; bits <= 6; ++bits) {
    threes *= 3;
    fours *= 4;
    EXPECT_EQ(partitions(bits, kElementwiseDims, {}).size(), threes);
    EXPECT_EQ(partitions(bits, kSoftmaxDims, {}).size(), threes);
    EXPECT_EQ(partitions(bits, kAttentionDims, {}).size(), fours);
  }
}

TEST(Partitions, AllDifferAndTakeEveryBitWithAtMostOneSquare) {
  for (int bits = 1; bits <= 5; ++bits) {
    std::vector<Partition> all = partitions(bits, kLinearDims, kPair);
    const std::vector<Partition> copied = copied_partitions(bits);
    all.insert(all.end(), copied.begin(), copied.end());
    for (const Partition& p : all) {
      EXPECT_EQ(p.bits(), bits) << text_of(p, Letters::linear);
      EXPECT_LE(std::ranges::count_if(p.sequence, &Primitive::is_square), 1);
    }
    EXPECT_EQ(std::set<Partition>(all.begin(), all.end()).size(), all.size()) << bits << " bits";
  }
}

TEST(Partitions, ASquareCutsRowsInnerAndColumns) {
  const Partition p{{{.dim = Dim::columns}, {.dim = Dim::rows, .q = 4}, {.dim = Dim::batch}}};
  EXPECT_EQ(p.bits(), 6);
  EXPECT_EQ(p.levels(Dim::batch), 1);
  EXPECT_EQ(p.levels(Dim::rows), 2);
  EXPECT_EQ(p.levels(Dim::inner), 2);
  EXPECT_EQ(p.levels(Dim::columns), 3);
  EXPECT_EQ(p.cuts(Dim::columns), std::vector<int>({0}));
  EXPECT_EQ(p.cuts(Dim::batch), std::vector<int>({5}));
  EXPECT_EQ(p.square_rows(), std::vector<int>({1, 3}));
  EXPECT_EQ(p.square_columns(), std::vector<int>({2, 4}));
  const Partition samples = with_sample_rows(p);
  EXPECT_EQ(samples.levels(Dim::batch), 3);
  EXPECT_EQ(samples.levels(Dim::rows), 0);
}

TEST(Partitions, AreWrittenAsInThePaper) {
  const Partition linear{{{.dim = Dim::columns}, {.dim = Dim::rows, .q = 2}}};
  EXPECT_EQ(text_of(linear, Letters::linear), "{K, P2×2}");
  const Partition elementwise{{{.dim = Dim::columns}, {.dim = Dim::rows}, {.dim = Dim::columns}}};
  EXPECT_EQ(text_of(elementwise, Letters::elementwise), "{D, S, D}");
  const Partition attention{{{.dim = Dim::heads}, {.dim = Dim::keys}}};
  EXPECT_EQ(text_of(attention, Letters::attention), "{H, T}");
  const Partition pair{{{.dim = Dim::batch, .q = 4, .rotation = Rotation::minus}}};
  EXPECT_EQ(text_of(pair, Letters::linear), "{P⁻4×4/B}");
  EXPECT_EQ(text_of(pair, Letters::elementwise), "{skew4×4/B}");
}

}  // namespace
}  // namespace braid
