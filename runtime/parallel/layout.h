#pragma once
// How a tensor lies over the ranks of a stage: a value. For each dim the axes that cut it, in
// order; an axis that cuts nothing replicates, unless the ranks along it hold summands.

#include <cstdint>
#include <vector>

#include "planner/strategy/mesh.h"

namespace braid::parallel {

enum class CutKind {
  blocks,  // rank i takes the i-th of `size` equal blocks
  zigzag,  // of 2·size equal blocks rank i takes the i-th and the i-th from the end: a causal ring
           // gives all ranks equal work
};

// Ranks (counted within the stage) along one axis, and how they share a dim.
struct Cut {
  GroupShape axis;
  CutKind kind = CutKind::blocks;
  GroupShape skew = {};  // a rank's place along this axis is added, around: a square's diagonals
  constexpr auto operator<=>(const Cut&) const = default;
};

struct Layout {
  std::vector<std::vector<Cut>> dims;
  std::vector<GroupShape> partial;  // along these axes the ranks' values add up
  bool operator==(const Layout&) const = default;
};

constexpr int coordinate(int rank, const GroupShape& axis) {
  return rank / axis.stride % axis.size;
}

// Which piece of a cut a rank takes.
constexpr int index_of(int rank, const Cut& cut) {
  return (coordinate(rank, cut.axis) + coordinate(rank, cut.skew)) % cut.axis.size;
}

struct Segment {
  std::int64_t begin = 0, end = 0;
  constexpr std::int64_t size() const { return end - begin; }
  constexpr auto operator<=>(const Segment&) const = default;
};

// The indices of a dim of length `extent` that a rank holds, in the order it holds them; neighbours
// are merged.
std::vector<Segment> segments(const std::vector<Cut>& cuts, std::int64_t extent, int rank);

}  // namespace braid::parallel
