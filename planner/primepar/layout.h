#pragma once
// Which block of a tensor each device holds, and what must move to get from one such layout to
// another.

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/primepar/square.h"

namespace braid {

inline constexpr int kLayoutAxes = 4;

// A tensor's axes are cut into powers of two, so two blocks are nested or disjoint along each.
struct Layout {
  std::array<std::uint8_t, kLayoutAxes> levels{};  // log2 of the slices along each axis
  std::vector<std::uint32_t> blocks;               // by device; see packed()

  auto operator<=>(const Layout&) const = default;
};

// Six bits an axis, the slice's index at their top, so that a prefix compares blocks of different
// sizes.
std::uint32_t packed(std::span<const int> index, std::span<const std::uint8_t> levels);

// The layout of a tensor with these axes as the operator's partition has it in a phase's step.
Layout layout_of(const Partition& partition, std::span<const Dim> axes, Phase phase, int step);

// The same with an axis of `axis` cut at most 2^most ways: the finer cuts hold copies (key and
// value heads that are fewer than the devices).
Layout coarsened(Layout layout, int axis, int most);

// What a device needs, as parts of the whole tensor, averaged over devices.
struct Movement {
  double held = 0;  // it has that already
  double near = 0;  // another device of its node has it
  double far = 0;   // only other nodes have it
};

// A layout as a source, prepared for many destinations.
class MovementSource {
 public:
  // `node_width` devices of a node have neighbouring ids; it divides the devices.
  MovementSource(const Layout& from, int node_width);
  Movement to(const Layout& destination) const;

 private:
  std::array<std::uint8_t, kLayoutAxes> levels_;
  std::size_t devices_;
  bool one_node_;
  // For every offset j inside a node, what device (d xor j) holds, unless an earlier device of the
  // node holds the same: then a value that matches nothing.
  std::vector<std::uint32_t> neighbours_;
  std::vector<std::uint32_t> own_;
};

}  // namespace braid
