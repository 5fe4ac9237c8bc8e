#pragma once
// Rectangles of tensors: what a rank holds of a tensor and what a file holds of it.

#include <cstdint>
#include <optional>
#include <vector>

namespace braid::checkpoint {

// A rectangle: along each dim, where it begins and how long it is.
struct Box {
  std::vector<std::int64_t> offsets, sizes;
  bool operator==(const Box&) const = default;
};

Box whole_box(const std::vector<std::int64_t>& shape);
std::int64_t elements(const std::vector<std::int64_t>& shape);
inline std::int64_t elements(const Box& box) { return elements(box.sizes); }
// Row-major, in elements.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape);

// Empty if they have no element in common.
std::optional<Box> intersection(const Box& a, const Box& b);

// Elements [begin, end) of a row-major tensor as rectangles in their order: at most 2n - 1 of a
// tensor of n dims.
std::vector<Box> boxes_of_range(const std::vector<std::int64_t>& shape, std::int64_t begin,
                                std::int64_t end);

// The rectangle that the two make together; empty if they make none.
std::optional<Box> joined(const Box& a, const Box& b);

}  // namespace braid::checkpoint
