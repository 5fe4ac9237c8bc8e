#include "runtime/parallel/redistribute.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/comm/in_process.h"
#include "tests/parallel/random_layout.h"
#include "tests/support/tensors.h"

namespace braid::parallel {
namespace {

// Whole numbers, so that sums in any order are exact.
at::Tensor whole_tensor(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  return random_tensor({rows, columns, 3}, seed).mul(1000).round();
}

// A number for the summand that a rank holds.
int summand_of(const Layout& layout, int rank) {
  int number = 0;
  for (const GroupShape& axis : layout.partial)
    number = number * axis.size + coordinate(rank, axis);
  return number;
}

// Elements that a rank has afterwards and had not before.
std::int64_t arriving(const Layout& from, const Layout& to, std::int64_t rows, std::int64_t columns,
                      int ranks) {
  std::int64_t total = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    at::Tensor before = at::zeros({rows, columns}), after = at::zeros({rows, columns});
    const auto mark = [&](const at::Tensor& held, const Layout& layout) {
      for (const Segment& r : segments(layout.dims[0], rows, rank))
        for (const Segment& c : segments(layout.dims[1], columns, rank))
          held.narrow(0, r.begin, r.size()).narrow(1, c.begin, c.size()).fill_(1);
    };
    mark(before, from);
    mark(after, to);
    total += after.gt(before).sum().item().toLong();
  }
  return total;
}

TEST(Redistribution, AnyLayoutBecomesAnyOther) {
  std::mt19937_64 random(11);
  for (int turn = 0; turn < 60; ++turn) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    const Layout from = random_layout(ranks, 2, true, random);
    const Layout to = random_layout(ranks, 2, false, random);
    const std::int64_t columns = std::int64_t{2} * ranks;
    const std::int64_t rows = columns * (1 + static_cast<std::int64_t>(random() % 2));
    int summands = 1;
    for (const GroupShape& axis : from.partial) summands *= axis.size;
    std::vector<at::Tensor> parts;
    at::Tensor sum = at::zeros({rows, columns, 3}, at::kDouble);
    for (int s = 0; s < summands; ++s) {
      parts.push_back(whole_tensor(rows, columns, random()));
      sum.add_(parts.back());
    }
    std::vector<std::int64_t> sent(static_cast<std::size_t>(ranks));
    comm::run_in_process(ranks, [&](comm::Group& world) {
      const Redistribution move(from, to, {rows, columns}, world, "test");
      const at::Tensor mine = slice_of(
          parts[static_cast<std::size_t>(summand_of(from, world.rank()))], from, world.rank());
      EXPECT_TRUE(identical(move(mine), slice_of(sum, to, world.rank())))
          << "turn " << turn << ", rank " << world.rank() << " of " << ranks;
      sent[static_cast<std::size_t>(world.rank())] = move.sent();
    });
    if (from.partial.empty()) {
      EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}),
                arriving(from, to, rows, columns, ranks))
          << "turn " << turn << ": nothing travels that is there already";
    }
  }
}

TEST(Redistribution, ASliceOfWhatIsThereSendsNothing) {
  std::mt19937_64 random(12);
  for (int turn = 0; turn < 20; ++turn) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    const std::int64_t size = std::int64_t{2} * ranks;
    Layout whole;
    whole.dims.resize(2);
    const Layout to = random_layout(ranks, 2, false, random);
    comm::run_in_process(ranks, [&](comm::Group& world) {
      const Redistribution move(whole, to, {size, size}, world, "test");
      EXPECT_EQ(move.sent(), 0);
      const at::Tensor x = whole_tensor(size, size, 5);
      EXPECT_TRUE(identical(move(x), slice_of(x, to, world.rank())));
    });
  }
}

TEST(Redistribution, TheSameLayoutIsLeftAlone) {
  std::mt19937_64 random(13);
  for (int turn = 0; turn < 20; ++turn) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    const Layout layout = random_layout(ranks, 2, false, random);
    const std::int64_t size = std::int64_t{2} * ranks;
    Layout same = layout;  // another value that says the same
    same.dims[0].push_back({{1, 1}, CutKind::zigzag});
    comm::run_in_process(ranks, [&](comm::Group& world) {
      const Redistribution move(layout, same, {2 * size, size}, world, "test");
      EXPECT_TRUE(move.identity());
      EXPECT_EQ(move.sent(), 0);
      const at::Tensor x = slice_of(whole_tensor(2 * size, size, 6), layout, world.rank());
      EXPECT_TRUE(move(x).is_same(x));
    });
  }
}

TEST(Redistribution, BlocksToReplicasIsAnAllGather) {
  comm::run_in_process(4, [](comm::Group& world) {
    const Layout from{.dims = {{{{4, 1}}}, {}}, .partial = {}};
    const Layout to{.dims = {{}, {}}, .partial = {}};
    const Redistribution move(from, to, {8, 5}, world, "test");
    EXPECT_FALSE(move.identity());
    EXPECT_EQ(move.sent(), 3 * 2 * 5);  // its two rows, to each of the three others
  });
}

}  // namespace
}  // namespace braid::parallel
