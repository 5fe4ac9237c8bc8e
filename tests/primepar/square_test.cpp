// The invariants of the square primitive, for q = 2, 4 and 8 in all three rotations.

#include "planner/primepar/square.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace braid {
namespace {

constexpr int kSizes[] = {2, 4, 8};
constexpr Rotation kRotations[] = {Rotation::paper, Rotation::plus, Rotation::minus};

using Block = std::pair<int, int>;

// The block of an operand that a device multiplies, or adds to, at a step.
Block block_of(Operand operand, const SquareIndex& i) {
  switch (operand) {
    case Operand::input:
      return {i.m, i.n};
    case Operand::weight:
    case Operand::weight_gradient:
      return {i.n, i.k};
    case Operand::output_gradient:
      return {i.m, i.k};
  }
  return {};
}

std::vector<Operand> inputs_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return {Operand::input, Operand::weight};
    case Phase::backward:
      return {Operand::output_gradient, Operand::weight};
    case Phase::gradient:
      return {Operand::input, Operand::output_gradient};
  }
  return {};
}

template <class Visit>
void for_each_square(Visit visit) {
  for (const Rotation rotation : kRotations)
    for (const int q : kSizes)
      for (const Phase phase : kPhases) visit(rotation, q, phase);
}

TEST(Square, DevicesMultiplyDifferentBlocksAtEveryStep) {
  for_each_square([](Rotation rotation, int q, Phase phase) {
    for (int t = 0; t < q; ++t)
      for (const Operand operand : inputs_of(phase)) {
        std::set<Block> blocks;
        for (int r = 0; r < q; ++r)
          for (int c = 0; c < q; ++c)
            blocks.insert(block_of(operand, square_index(rotation, phase, q, r, c, t)));
        EXPECT_EQ(blocks.size(), static_cast<std::size_t>(q * q));
      }
  });
}

TEST(Square, EveryProductOfAPhaseIsDoneOnce) {
  for_each_square([](Rotation rotation, int q, Phase phase) {
    std::set<std::tuple<int, int, int>> products;
    for (int t = 0; t < q; ++t)
      for (int r = 0; r < q; ++r)
        for (int c = 0; c < q; ++c) {
          const SquareIndex i = square_index(rotation, phase, q, r, c, t);
          products.insert({i.m, i.n, i.k});
        }
    EXPECT_EQ(products.size(), static_cast<std::size_t>(q * q * q));
  });
}

// A block arrives during a step from the device that holds it then.
TEST(Square, TransfersBringWhatTheNextStepMultiplies) {
  for_each_square([](Rotation rotation, int q, Phase phase) {
    for (int t = 0; t + 1 < q; ++t) {
      std::set<Operand> moved;
      for (const Transfer& transfer : transfers(rotation, phase, q, t)) {
        moved.insert(transfer.operand);
        for (int r = 0; r < q; ++r)
          for (int c = 0; c < q; ++c) {
            const int from_r = (r + transfer.dr + q) % q, from_c = (c + transfer.dc + q) % q;
            EXPECT_EQ(
                block_of(transfer.operand, square_index(rotation, phase, q, from_r, from_c, t)),
                block_of(transfer.operand, square_index(rotation, phase, q, r, c, t + 1)));
          }
      }
      const std::vector<Operand> expected = inputs_of(phase);
      EXPECT_EQ(moved, std::set<Operand>(expected.begin(), expected.end()));
    }
  });
}

TEST(Square, ThePublishedWeightsAreBackWhereForwardBeganThem) {
  for (const int q : kSizes)
    for (int r = 0; r < q; ++r)
      for (int c = 0; c < q; ++c) {
        const auto weight = [&](Phase phase, int row, int column, int t) {
          return block_of(Operand::weight, square_index(Rotation::paper, phase, q, row, column, t));
        };
        EXPECT_EQ(weight(Phase::forward, r, c, q - 1), weight(Phase::backward, r, c, 0));
        // The transfer of backward's last step, from (r, c+1).
        EXPECT_EQ(weight(Phase::backward, r, (c + 1) % q, q - 1), weight(Phase::forward, r, c, 0));
        // The gradient ends beside its weight.
        EXPECT_EQ(weight(Phase::gradient, r, c, q - 1), weight(Phase::forward, r, c, 0));
      }
}

TEST(Square, ThePairStartsEveryPhaseFromTheSameBlocks) {
  for (const Rotation rotation : {Rotation::plus, Rotation::minus})
    for (const int q : kSizes)
      for (int r = 0; r < q; ++r)
        for (int c = 0; c < q; ++c) {
          const SquareIndex home = square_index(rotation, Phase::forward, q, r, c, 0);
          EXPECT_EQ(square_index(rotation, Phase::backward, q, r, c, 0), home);
          EXPECT_EQ(square_index(rotation, Phase::gradient, q, r, c, 0), home);
        }
}

TEST(Square, PlusUnskewsAnActivationAndMinusSkewsIt) {
  for (const int q : kSizes)
    for (int r = 0; r < q; ++r)
      for (int c = 0; c < q; ++c) {
        const SquareIndex plus = square_index(Rotation::plus, Phase::forward, q, r, c, 0);
        const SquareIndex minus = square_index(Rotation::minus, Phase::forward, q, r, c, 0);
        EXPECT_EQ(block_of(Operand::output_gradient, plus), block_of(Operand::input, minus));
        EXPECT_EQ(block_of(Operand::input, plus), block_of(Operand::output_gradient, minus));
      }
}

// Elements sent by a device: 2(q-1)(TN + TK + NK) / q², and 2NK / q² more as published.
TEST(Square, MovesAsManyBlocksAsTheClosedForm) {
  for (const Rotation rotation : kRotations)
    for (const int q : kSizes) {
      std::map<Operand, int> sent;
      for (const Phase phase : kPhases)
        for (int t = 0; t < q; ++t)
          for (const Transfer& transfer : transfers(rotation, phase, q, t))
            ++sent[transfer.operand];
      const int rounds = 2 * (q - 1);
      const bool paper = rotation == Rotation::paper;
      EXPECT_EQ(sent[Operand::input], rounds);
      EXPECT_EQ(sent[Operand::output_gradient], rounds);
      EXPECT_EQ(sent[Operand::weight], rounds + (paper ? 1 : 0));
      EXPECT_EQ(sent[Operand::weight_gradient], paper ? 1 : 0);
    }
}

TEST(Square, RowsAndColumnsTakeTheDeviceBitsInTurn) {
  // Bits of 0b0110101: one before the square, four of it, two after.
  const SquarePlace place = place_in_square(0b0110101, 7, 1, 4);
  EXPECT_EQ(place.r, 0b10);
  EXPECT_EQ(place.c, 0b11);
}

TEST(SliceIndex, AnOuterCutIsTheMoreSignificant) {
  const Partition p{{{.dim = Dim::columns}, {.dim = Dim::rows, .q = 2}}};
  const SliceIndex slices = slice_index(p, 0b110, Phase::forward, 0);  // r = 1, c = 0
  EXPECT_EQ(slices[static_cast<std::size_t>(Dim::columns)], 2);        // half 1, quarter 0 of it
  EXPECT_EQ(slices[static_cast<std::size_t>(Dim::rows)], 1);
  EXPECT_EQ(slices[static_cast<std::size_t>(Dim::inner)], 1);
  EXPECT_EQ(slices[static_cast<std::size_t>(Dim::batch)], 0);
}

}  // namespace
}  // namespace braid
