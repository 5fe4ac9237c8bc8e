#pragma once
// The square primitive P: which slices a device works on at each step of each phase, and the blocks
// that move while it does.

#include <array>
#include <vector>

#include "planner/primepar/partition.h"

namespace braid {

enum class Phase { forward, backward, gradient };
inline constexpr Phase kPhases[] = {Phase::forward, Phase::backward, Phase::gradient};

// What a device of a square multiplies: rows m, inner n, columns k, each modulo q.
struct SquareIndex {
  int m = 0, n = 0, k = 0;
  bool operator==(const SquareIndex&) const = default;
};
SquareIndex square_index(Rotation rotation, Phase phase, int q, int r, int c, int step);

// A device's place in a square whose first bit is `first`: r and c take its bits in turn.
struct SquarePlace {
  int r = 0, c = 0;
};
SquarePlace place_in_square(int device, int bits, int first, int q);

enum class Operand { input, weight, output_gradient, weight_gradient };

// While `step` is computed a block comes in from the device (r + dr, c + dc) of the square.
struct Transfer {
  Operand operand;
  int dr = 0, dc = 0;
  bool operator==(const Transfer&) const = default;
};
std::vector<Transfer> transfers(Rotation rotation, Phase phase, int q, int step);

// Slice of every dimension (by Dim) that a device works on: the paper's DSI.
using SliceIndex = std::array<int, kDims>;
SliceIndex slice_index(const Partition& partition, int device, Phase phase, int step);

}  // namespace braid
