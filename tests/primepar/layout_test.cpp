// What moves between two layouts, against a twin that looks at every element of a small tensor.

#include "planner/primepar/layout.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace braid {
namespace {

constexpr std::array kAxes = {Dim::batch, Dim::rows, Dim::columns};
constexpr int kFine = 64;  // elements along an axis: the finest cut there is

// Elements that a device holds, each axis by itself.
struct Box {
  std::array<int, 3> begin{}, end{};
  bool holds(int x, int y, int z) const {
    const std::array<int, 3> at{x, y, z};
    for (std::size_t a = 0; a < 3; ++a)
      if (at[a] < begin[a] || at[a] >= end[a]) return false;
    return true;
  }
};

Box box_of(const Partition& p, int device, Phase phase, int step) {
  const SliceIndex slices = slice_index(p, device, phase, step);
  Box box;
  for (std::size_t a = 0; a < 3; ++a) {
    const int size = kFine >> p.levels(kAxes[a]);
    box.begin[a] = slices[static_cast<std::size_t>(kAxes[a])] * size;
    box.end[a] = box.begin[a] + size;
  }
  return box;
}

Movement element_by_element(const Partition& from, const Partition& to, int width) {
  const int devices = 1 << from.bits();
  Movement total;
  constexpr int kStep = 8;  // one element of each block: axes are cut into eight at most here
  constexpr int kParts = kFine / kStep;
  const double share = 1.0 / (kParts * kParts * kParts) / devices;
  for (int d = 0; d < devices; ++d) {
    const Box want = box_of(to, d, Phase::forward, 0);
    for (int x = 0; x < kFine; x += kStep)
      for (int y = 0; y < kFine; y += kStep)
        for (int z = 0; z < kFine; z += kStep) {
          if (!want.holds(x, y, z)) continue;
          bool inside = false;
          const int node = d / width * width;
          for (int other = node; other < node + width; ++other)
            inside = inside || box_of(from, other, Phase::forward, 0).holds(x, y, z);
          if (box_of(from, d, Phase::forward, 0).holds(x, y, z)) {
            total.held += share;
          } else {
            (inside ? total.near : total.far) += share;
          }
        }
  }
  return total;
}

TEST(Movement, IsWhatCountingElementsGives) {
  constexpr Rotation kRotations[] = {Rotation::paper, Rotation::minus};
  std::vector<Partition> all = partitions(3, kLinearDims, kRotations);
  const std::vector<Partition> copied = copied_partitions(3);
  all.insert(all.end(), copied.begin(), copied.end());
  std::mt19937 random(1);
  std::uniform_int_distribution<std::size_t> any(0, all.size() - 1);
  for (const int width : {2, 4, 8})
    for (int trial = 0; trial < 60; ++trial) {
      const Partition& from = all[any(random)];
      const Partition& to = all[any(random)];
      const MovementSource source(layout_of(from, kAxes, Phase::forward, 0), width);
      const Movement fast = source.to(layout_of(to, kAxes, Phase::forward, 0));
      const Movement slow = element_by_element(from, to, width);
      const std::string what = text_of(from, Letters::linear) + " to " +
                               text_of(to, Letters::linear) + ", nodes of " + std::to_string(width);
      EXPECT_NEAR(fast.held, slow.held, 1e-12) << what;
      EXPECT_NEAR(fast.near, slow.near, 1e-12) << what;
      EXPECT_NEAR(fast.far, slow.far, 1e-12) << what;
    }
}

TEST(Movement, TheSameLayoutMovesNothing) {
  for (const Partition& p : partitions(4, kElementwiseDims, {})) {
    const Layout layout = layout_of(p, kAxes, Phase::forward, 0);
    const Movement movement = MovementSource(layout, 4).to(layout);
    EXPECT_EQ(movement.near, 0);
    EXPECT_EQ(movement.far, 0);
  }
}

TEST(Movement, GatheringBringsAllButOnesOwn) {
  const Partition cut{{{.dim = Dim::rows}, {.dim = Dim::rows}, {.dim = Dim::rows}}};
  const Partition whole{{{.dim = Dim::copies}, {.dim = Dim::copies}, {.dim = Dim::copies}}};
  const Layout from = layout_of(cut, kAxes, Phase::forward, 0);
  const Layout to = layout_of(whole, kAxes, Phase::forward, 0);
  const Movement gathered = MovementSource(from, 4).to(to);
  EXPECT_DOUBLE_EQ(gathered.held, 1.0 / 8);
  EXPECT_DOUBLE_EQ(gathered.near, 3.0 / 8);
  EXPECT_DOUBLE_EQ(gathered.far, 4.0 / 8);
  const Movement scattered = MovementSource(to, 4).to(from);
  EXPECT_DOUBLE_EQ(scattered.near + scattered.far, 0) << "who has all cuts for itself";
}

TEST(Coarsened, FinerCutsBecomeCopies) {
  constexpr std::array kHeads = {Dim::batch, Dim::keys, Dim::heads};
  const Partition p{{{.dim = Dim::heads}, {.dim = Dim::heads}, {.dim = Dim::heads}}};
  const Layout layout = coarsened(layout_of(p, kHeads, Phase::forward, 0), 2, 1);
  EXPECT_EQ(layout.levels[2], 1);
  EXPECT_EQ(std::set<std::uint32_t>(layout.blocks.begin(), layout.blocks.end()).size(), 2U);
  EXPECT_EQ(layout.blocks[0], layout.blocks[3]);
  EXPECT_NE(layout.blocks[3], layout.blocks[4]);
}

}  // namespace
}  // namespace braid
