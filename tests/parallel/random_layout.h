#pragma once
// Layouts drawn at random, and what a rank holds under one, by slicing the whole.

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <random>
#include <vector>

#include "runtime/parallel/layout.h"

namespace braid::parallel {

// Axes that together number the ranks of a stage.
inline std::vector<GroupShape> random_axes(int ranks, std::mt19937_64& random) {
  std::vector<GroupShape> axes;
  int stride = 1;
  for (int rest = ranks; rest > 1;) {
    std::vector<int> sizes;
    for (int size = 2; size <= rest; ++size)
      if (rest % size == 0) sizes.push_back(size);
    const int size = sizes[random() % sizes.size()];
    axes.push_back({size, stride});
    stride *= size;
    rest /= size;
  }
  std::shuffle(axes.begin(), axes.end(), random);
  return axes;
}

// Every axis cuts one of `dims` dims, in any order of axes and either kind, or none; or, where
// `may_sum`, holds summands. Some cuts are skewed along another axis that holds none.
inline Layout random_layout(int ranks, int dims, bool may_sum, std::mt19937_64& random) {
  Layout layout;
  layout.dims.resize(static_cast<std::size_t>(dims));
  const std::vector<GroupShape> axes = random_axes(ranks, random);
  for (const GroupShape& axis : axes) {
    const std::size_t choice = random() % (layout.dims.size() + 2);
    const CutKind kind = random() % 2 == 0 ? CutKind::blocks : CutKind::zigzag;
    if (choice < layout.dims.size()) {
      layout.dims[choice].push_back({axis, kind});
    } else if (may_sum && choice == layout.dims.size()) {
      layout.partial.push_back(axis);
    }
  }
  for (auto& cuts : layout.dims)
    for (Cut& cut : cuts) {
      const GroupShape& other = axes[random() % axes.size()];
      const bool sums = std::ranges::count(layout.partial, other) > 0;
      if (other != cut.axis && !sums && random() % 2 == 0) cut.skew = other;
    }
  return layout;
}

inline at::Tensor take(const at::Tensor& x, std::int64_t dim, const std::vector<Segment>& held) {
  std::vector<at::Tensor> parts;
  parts.reserve(held.size());
  for (const Segment& s : held) parts.push_back(x.narrow(dim, s.begin, s.size()));
  return at::cat(parts, dim);
}

inline at::Tensor slice_of(const at::Tensor& whole, const Layout& layout, int rank) {
  at::Tensor slice = whole;
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    const auto dim = static_cast<std::int64_t>(d);
    slice = take(slice, dim, segments(layout.dims[d], whole.size(dim), rank));
  }
  return slice;
}

}  // namespace braid::parallel
