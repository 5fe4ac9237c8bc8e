#include "runtime/parallel/layout.h"

#include <gtest/gtest.h>

#include "runtime/parallel/site.h"
#include "tests/parallel/random_layout.h"

namespace braid::parallel {
namespace {

using enum CutKind;

TEST(Layout, SegmentsAreThoseWorkedOutByHand) {
  struct Case {
    const char* fact;
    std::vector<Cut> cuts;
    std::int64_t extent;
    int rank;
    std::vector<Segment> held;
  };
  const Case cases[] = {
      {"no cut leaves the whole", {}, 8, 3, {{0, 8}}},
      {"a cut of one leaves the whole", {{{1, 1}, zigzag}}, 8, 5, {{0, 8}}},
      {"the third of four blocks", {{{4, 1}}}, 8, 2, {{4, 6}}},
      {"an axis with a stride: rank 5 is the second along it", {{{2, 4}}}, 8, 5, {{4, 8}}},
      {"an axis with a stride: rank 3 is the first along it", {{{2, 4}}}, 8, 3, {{0, 4}}},
      {"zigzag's first rank has both ends", {{{2, 1}, zigzag}}, 8, 0, {{0, 2}, {6, 8}}},
      {"zigzag's last rank has one run in the middle", {{{2, 1}, zigzag}}, 8, 1, {{2, 6}}},
      {"zigzag's second of four", {{{4, 1}, zigzag}}, 16, 1, {{2, 4}, {12, 14}}},
      {"blocks of a block", {{{2, 2}}, {{2, 1}}}, 8, 1, {{2, 4}}},
      {"the first block of two ends", {{{2, 2}, zigzag}, {{2, 1}}}, 8, 0, {{0, 2}}},
      {"the second block of two ends", {{{2, 2}, zigzag}, {{2, 1}}}, 8, 1, {{6, 8}}},
      {"the second block of a middle", {{{2, 2}, zigzag}, {{2, 1}}}, 8, 3, {{4, 6}}},
      {"a block across two runs", {{{2, 3}, zigzag}, {{3, 1}}}, 24, 1, {{4, 6}, {18, 20}}},
      {"zigzag inside a block", {{{2, 2}}, {{2, 1}, zigzag}}, 8, 2, {{4, 5}, {7, 8}}},
      {"a diagonal: row 1 of column 2 has the fourth",
       {{.axis = {4, 1}, .skew = {4, 4}}},
       8,
       6,
       {{6, 8}}},
      {"and row 3 begins anew", {{.axis = {4, 1}, .skew = {4, 4}}}, 8, 14, {{2, 4}}},
      {"zigzag of a zigzag", {{{2, 2}, zigzag}, {{2, 1}, zigzag}}, 16, 0, {{0, 2}, {14, 16}}},
  };
  for (const Case& c : cases) EXPECT_EQ(segments(c.cuts, c.extent, c.rank), c.held) << c.fact;
}

TEST(Layout, EveryElementIsHeldOnceByEachReplica) {
  std::mt19937_64 random(3);
  for (int turn = 0; turn < 200; ++turn) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    const Layout layout = random_layout(ranks, 2, false, random);
    int pieces = 1;
    for (const auto& cuts : layout.dims)
      for (const Cut& cut : cuts) pieces *= cut.axis.size;
    const std::int64_t rows = std::int64_t{2} * ranks, columns = 2 * rows;
    std::vector<int> holders(static_cast<std::size_t>(rows * columns), 0);
    for (int rank = 0; rank < ranks; ++rank)
      for (const Segment& r : segments(layout.dims[0], rows, rank))
        for (const Segment& c : segments(layout.dims[1], columns, rank))
          for (std::int64_t i = r.begin; i < r.end; ++i)
            for (std::int64_t j = c.begin; j < c.end; ++j)
              ++holders[static_cast<std::size_t>(i * columns + j)];
    EXPECT_EQ(holders, std::vector<int>(holders.size(), ranks / pieces)) << "turn " << turn;
  }
}

TEST(Layout, OnlyWhatBeginsWithATokenAtPositionZeroHoldsTheFirst) {
  EXPECT_TRUE(holds_first({{0, 1}, {5, 6}}));
  EXPECT_FALSE(holds_first({{1, 4}}));
  EXPECT_FALSE(holds_first({{0, 0}})) << "a rank without tokens";
  EXPECT_FALSE(holds_first({}));
}

TEST(Layout, ACutThatDoesNotDivideIsABug) {
  EXPECT_DEATH(segments({{{4, 1}}}, 6, 0), "divides");
  EXPECT_DEATH(segments({{{2, 1}, zigzag}}, 6, 0), "divides");
}

}  // namespace
}  // namespace braid::parallel
