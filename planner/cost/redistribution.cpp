#include "planner/cost/redistribution.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace braid {

namespace {

struct Interval {
  double begin = 0, end = 0;
};

double overlap(const Interval& a, const Interval& b) {
  return std::max(0.0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

// The part of a micro-batch that a device holds: samples, and tokens in at most two pieces, as
// shares of all.
struct Holding {
  Interval samples;
  std::array<Interval, 2> tokens;
};

double overlap(const Holding& a, const Holding& b) {
  double tokens = 0;
  for (const Interval& x : a.tokens)
    for (const Interval& y : b.tokens) tokens += overlap(x, y);
  return tokens * overlap(a.samples, b.samples);
}

Interval part(int index, int parts) {
  return {static_cast<double>(index) / parts, static_cast<double>(index + 1) / parts};
}

Holding holding(int local, const ActivationLayout& layout, bool zigzag, MeshOrder order) {
  const bool data_inner = order == MeshOrder::pp_tp_cp_dp;
  const int data = data_inner ? local % layout.dp : local / (layout.tp * layout.cp);
  const int context = (data_inner ? local / layout.dp : local / layout.tp) % layout.cp;
  const int tensor = data_inner ? local / (layout.dp * layout.cp) : local % layout.tp;
  Holding held{.samples = part(data, layout.dp), .tokens = {}};
  const Interval mine = part(tensor, layout.tp);  // of the tokens of this context rank
  if (layout.cp == 1 || !zigzag) {
    const Interval whole = part(context, layout.cp);
    const double size = whole.end - whole.begin;
    held.tokens[0] = {whole.begin + size * mine.begin, whole.begin + size * mine.end};
    return held;
  }
  // A zigzag's two blocks, one behind the other.
  const double block = 0.5 / layout.cp;
  const double starts[] = {context * block, (2 * layout.cp - 1 - context) * block};
  for (std::size_t half = 0; half < 2; ++half) {
    const double first = 0.5 * static_cast<double>(half);
    const Interval within{std::clamp(mine.begin, first, first + 0.5),
                          std::clamp(mine.end, first, first + 0.5)};
    held.tokens[half] = {starts[half] + 2 * block * (within.begin - first),
                         starts[half] + 2 * block * (within.end - first)};
  }
  return held;
}

}  // namespace

Redistribution redistribution(const ActivationLayout& from, const ActivationLayout& to, bool zigzag,
                              const Mesh& mesh, const DeviceSpan& stage, const Topology& topology) {
  Redistribution result;
  if (from == to) return result;
  const int devices = stage.count();
  const int groups = std::gcd(from.dp, to.dp);  // sets of samples that stay among themselves
  const bool data_inner = mesh.order == MeshOrder::pp_tp_cp_dp;
  const bool grid = from.square > 1 || to.square > 1;
  result.among = data_inner && !grid ? GroupShape{devices, stage.stride}
                                     : GroupShape{devices / groups, stage.stride};
  if (grid) {
    if (data_inner) result.among.stride *= groups;
    const double width = result.among.size;
    result.moved = (width - 1) / width;
    for (const GroupPlacement& g : topology.placements(result.among, stage))
      if (g.crosses()) result.far = std::max(result.far, (width - g.fewest) / width);
    return result;
  }
  constexpr int kLooked = 64;
  const double share = 1.0 / devices;
  const int looked = std::min(devices, kLooked);
  for (int k = 0; k < looked; ++k) {
    // Not at one distance, which could be that of equal coordinates.
    const int apart = devices / looked;
    const auto local = static_cast<int>(std::int64_t{k} * devices / looked) + k % apart;
    const int node = topology.node_of(stage.at(local));
    const auto before = [&](int device) { return holding(device, from, zigzag, mesh.order); };
    const auto after = [&](int device) { return holding(device, to, zigzag, mesh.order); };
    const Holding mine_before = before(local), mine_after = after(local);
    const double kept = overlap(mine_before, mine_after);
    double sent_near = 0, received_near = 0;  // between devices of this node
    const auto look_at = [&](int other) {
      if (topology.node_of(stage.at(other)) != node) return false;
      sent_near += overlap(mine_before, after(other));
      received_near += overlap(before(other), mine_after);
      return true;
    };
    for (int other = local - 1; other >= 0 && look_at(other);) --other;
    for (int other = local + 1; other < devices && look_at(other);) ++other;
    result.moved = std::max(result.moved, 1 - kept / share);
    result.far = std::max(result.far, 1 - (kept + std::min(sent_near, received_near)) / share);
  }
  constexpr double kRounding = 1e-9;
  if (result.moved < kRounding) result.moved = 0;
  if (result.far < kRounding) result.far = 0;
  return result;
}

Redistribution Redistributions::of(const ActivationLayout& from, const ActivationLayout& to,
                                   const Mesh& mesh, int stage) const {
  const Key key{from, to, mesh, stage};
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  const Redistribution computed =
      redistribution(from, to, zigzag_, mesh, devices_of_stage(stage, mesh), topology_);
  const std::scoped_lock lock(mutex_);
  return known_.emplace(key, computed).first->second;
}

}  // namespace braid
