// Rectangles of ranges, against counting every element.

#include "runtime/checkpoint/box.h"

#include <gtest/gtest.h>

#include <set>

namespace braid::checkpoint {
namespace {

// The row-major numbers of a rectangle's elements.
std::vector<std::int64_t> numbers_in(const Box& box, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> numbers = {0};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<std::int64_t> next;
    for (const std::int64_t number : numbers)
      for (std::int64_t i = 0; i < box.sizes[dim]; ++i)
        next.push_back(number * shape[dim] + box.offsets[dim] + i);
    numbers = std::move(next);
  }
  return numbers;
}

TEST(Box, RectanglesOfARangeHoldItsElementsInOrder) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {7}, {4, 5}, {1, 6}, {3, 2, 4}, {2, 3, 2, 2}};
  for (const auto& shape : shapes) {
    const std::int64_t all = elements(shape);
    for (std::int64_t begin = 0; begin <= all; ++begin)
      for (std::int64_t end = begin; end <= all; ++end) {
        const std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        EXPECT_LE(boxes.size(), 2 * shape.size() - 1);
        std::int64_t next = begin;
        for (const Box& box : boxes)
          for (const std::int64_t number : numbers_in(box, shape)) ASSERT_EQ(number, next++);
        ASSERT_EQ(next, end);
      }
  }
}

TEST(Box, NeighboursThatFormARectangleAreJoined) {
  EXPECT_EQ(joined({{0, 0}, {2, 3}}, {{2, 0}, {1, 3}}), (Box{{0, 0}, {3, 3}}));
  EXPECT_EQ(joined({{0, 3}, {2, 1}}, {{0, 0}, {2, 3}}), (Box{{0, 0}, {2, 4}}));
  EXPECT_FALSE(joined({{0, 0}, {2, 3}}, {{2, 0}, {1, 2}})) << "of another width";
  EXPECT_FALSE(joined({{0, 0}, {2, 3}}, {{3, 0}, {1, 3}})) << "a row apart";
  EXPECT_FALSE(joined({{0, 0}, {1, 3}}, {{1, 3}, {1, 3}})) << "at a corner";
}

TEST(Box, AnIntersectionIsWhatBothHold) {
  EXPECT_EQ(intersection({{0, 2}, {4, 4}}, {{2, 0}, {4, 3}}), (Box{{2, 2}, {2, 1}}));
  EXPECT_FALSE(intersection({{0}, {2}}, {{2}, {2}}));
}

}  // namespace
}  // namespace braid::checkpoint
