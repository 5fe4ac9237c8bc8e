#include "runtime/checkpoint/box.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace braid::checkpoint {

Box whole_box(const std::vector<std::int64_t>& shape) {
  return {.offsets = std::vector<std::int64_t>(shape.size(), 0), .sizes = shape};
}

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t dim = shape.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * shape[dim];
  return strides;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t dim = 0; dim < a.sizes.size(); ++dim) {
    const std::int64_t begin = std::max(a.offsets[dim], b.offsets[dim]);
    const std::int64_t end = std::min(a.offsets[dim] + a.sizes[dim], b.offsets[dim] + b.sizes[dim]);
    if (begin >= end) return std::nullopt;
    common.offsets[dim] = begin;
    common.sizes[dim] = end - begin;
  }
  return common;
}

namespace {

// Rectangles of [begin, end) of the tensor that remains when the first dims are fixed to `prefix`.
void add_boxes(const std::vector<std::int64_t>& shape, std::vector<std::int64_t>& prefix,
               std::int64_t begin, std::int64_t end, std::vector<Box>& boxes) {
  if (begin >= end) return;
  const std::size_t dim = prefix.size();
  const std::int64_t row = elements(
      std::vector<std::int64_t>(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end()));
  const auto part_of_row = [&](std::int64_t index, std::int64_t from, std::int64_t to) {
    prefix.push_back(index);
    add_boxes(shape, prefix, from, to, boxes);
    prefix.pop_back();
  };
  std::int64_t first = begin / row;
  const std::int64_t last = end / row;
  if (begin % row != 0) {
    part_of_row(first, begin % row, std::min(row, end - first * row));
    ++first;
  }
  if (first < last) {
    Box box{.offsets = prefix, .sizes = std::vector<std::int64_t>(dim, 1)};
    box.offsets.push_back(first);
    box.sizes.push_back(last - first);
    box.offsets.resize(shape.size(), 0);
    box.sizes.insert(box.sizes.end(), shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1,
                     shape.end());
    boxes.push_back(std::move(box));
  }
  if (first <= last) part_of_row(last, 0, end - last * row);
}

}  // namespace

std::vector<Box> boxes_of_range(const std::vector<std::int64_t>& shape, std::int64_t begin,
                                std::int64_t end) {
  std::vector<Box> boxes;
  std::vector<std::int64_t> prefix;
  add_boxes(shape, prefix, begin, end, boxes);
  return boxes;
}

std::optional<Box> joined(const Box& a, const Box& b) {
  std::optional<std::size_t> along;
  for (std::size_t dim = 0; dim < a.sizes.size(); ++dim) {
    if (a.offsets[dim] == b.offsets[dim] && a.sizes[dim] == b.sizes[dim]) continue;
    if (along) return std::nullopt;
    along = dim;
  }
  if (!along) return std::nullopt;
  const Box& first = a.offsets[*along] < b.offsets[*along] ? a : b;
  const Box& second = &first == &a ? b : a;
  if (first.offsets[*along] + first.sizes[*along] != second.offsets[*along]) return std::nullopt;
  Box both = first;
  both.sizes[*along] += second.sizes[*along];
  return both;
}

}  // namespace braid::checkpoint
