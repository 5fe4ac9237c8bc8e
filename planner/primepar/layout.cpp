#include "planner/primepar/layout.h"

#include <algorithm>

#include "planner/core/error.h"

namespace braid {

namespace {

constexpr int kAxisBits = 6;
constexpr std::uint32_t kNowhere = std::uint32_t{1} << (kLayoutAxes * kAxisBits);

constexpr int shift_of(std::size_t axis) {
  return kAxisBits * (kLayoutAxes - 1 - static_cast<int>(axis));
}

constexpr std::uint32_t prefix(std::size_t axis, int levels) {
  const std::uint32_t ones = (std::uint32_t{1} << levels) - 1;
  return ones << (kAxisBits - levels) << shift_of(axis);
}

// Shares of a tensor by the levels that cut it: 2^-levels.
constexpr auto kShares = [] {
  std::array<double, kLayoutAxes * kAxisBits + 1> shares{};
  double share = 1;
  for (double& s : shares) {
    s = share;
    share /= 2;
  }
  return shares;
}();

// How many of the rows × devices blocks in `have` overlap what the same device wants.
struct Search {
  const std::uint32_t* have;
  std::size_t rows;
  const std::uint32_t* want;
  std::size_t devices;
  std::uint32_t mask;
};

[[gnu::always_inline]] inline std::uint32_t count(const Search& s) {
  std::uint32_t found = 0;
  for (std::size_t row = 0; row < s.rows; ++row) {
    const std::uint32_t* have = s.have + row * s.devices;
    for (std::size_t d = 0; d < s.devices; ++d)
      found += ((have[d] ^ s.want[d]) & s.mask) == 0 ? 1 : 0;
  }
  return found;
}

std::uint32_t count_plain(const Search& s) { return count(s); }
#if defined(__x86_64__)
[[gnu::target("avx2")]] std::uint32_t count_avx2(const Search& s) { return count(s); }
[[gnu::target("avx512f,avx512vl,avx512bw")]] std::uint32_t count_avx512(const Search& s) {
  return count(s);
}
using Counter = std::uint32_t (*)(const Search&);
Counter best_counter() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw"))
    return count_avx512;
  return __builtin_cpu_supports("avx2") ? count_avx2 : count_plain;
}
#else
using Counter = std::uint32_t (*)(const Search&);
Counter best_counter() { return count_plain; }
#endif
const Counter kCounter = best_counter();

}  // namespace

std::uint32_t packed(std::span<const int> index, std::span<const std::uint8_t> levels) {
  std::uint32_t block = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis)
    block |= static_cast<std::uint32_t>(index[axis])
             << (kAxisBits - levels[axis]) << shift_of(axis);
  return block;
}

Layout layout_of(const Partition& partition, std::span<const Dim> axes, Phase phase, int step) {
  internal_check(axes.size() <= kLayoutAxes, "a tensor has at most four axes");
  Layout layout;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    layout.levels[axis] = static_cast<std::uint8_t>(partition.levels(axes[axis]));
  const int devices = 1 << partition.bits();
  layout.blocks.reserve(static_cast<std::size_t>(devices));
  std::array<int, kLayoutAxes> index{};
  for (int device = 0; device < devices; ++device) {
    const SliceIndex slices = slice_index(partition, device, phase, step);
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      index[axis] = slices[static_cast<std::size_t>(axes[axis])];
    layout.blocks.push_back(packed(std::span(index).first(axes.size()), layout.levels));
  }
  return layout;
}

Layout coarsened(Layout layout, int axis, int most) {
  const auto a = static_cast<std::size_t>(axis);
  if (layout.levels[a] <= most) return layout;
  const std::uint32_t dropped = prefix(a, layout.levels[a]) & ~prefix(a, most);
  layout.levels[a] = static_cast<std::uint8_t>(most);
  for (std::uint32_t& block : layout.blocks) block &= ~dropped;
  return layout;
}

MovementSource::MovementSource(const Layout& from, int node_width)
    : levels_(from.levels),
      devices_(from.blocks.size()),
      one_node_(static_cast<std::size_t>(node_width) >= devices_),
      own_(from.blocks) {
  if (one_node_) return;
  const auto width = static_cast<std::size_t>(node_width);
  internal_check(devices_ % width == 0, "nodes are full");
  std::vector<std::uint32_t> first(own_);
  for (std::size_t d = 0; d < devices_; ++d) {
    const std::size_t node = d / width * width;
    const std::span before = std::span(own_).subspan(node, d - node);
    if (std::ranges::find(before, own_[d]) != before.end()) first[d] = kNowhere;
  }
  neighbours_.reserve(width * devices_);
  for (std::size_t j = 0; j < width; ++j)
    for (std::size_t d = 0; d < devices_; ++d) neighbours_.push_back(first[d ^ j]);
}

Movement MovementSource::to(const Layout& destination) const {
  std::uint32_t mask = kNowhere;
  std::size_t need = 0, overlap = 0;
  for (std::size_t axis = 0; axis < kLayoutAxes; ++axis) {
    const std::uint8_t have = levels_[axis], want = destination.levels[axis];
    mask |= prefix(axis, std::min(have, want));
    need += want;
    overlap += std::max(have, want);
  }
  const double block = kShares[overlap] / static_cast<double>(devices_);
  const double whole = kShares[need];
  const std::uint32_t* want = destination.blocks.data();
  const double held = block * kCounter({own_.data(), 1, want, devices_, mask});
  if (one_node_) return {held, whole - held, 0};
  const double inside =
      block * kCounter({neighbours_.data(), neighbours_.size() / devices_, want, devices_, mask});
  return {held, inside - held, whole - inside};
}

}  // namespace braid
