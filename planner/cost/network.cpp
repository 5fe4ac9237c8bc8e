#include "planner/cost/network.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

namespace braid {

namespace {

int tree_levels(int nodes) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(nodes - 1)));
}

// Bytes that pass a device's port in a ring's collective, as a share of `bytes`: what relates a
// measured bus bandwidth to a time.
double ring_share(Collective op, int ranks) {
  const double once = (ranks - 1.0) / ranks;
  switch (op) {
    case Collective::all_reduce:
      return 2 * once;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return once;
    case Collective::point_to_point:
      return 1;
  }
  return once;
}

template <class Values, class Time>
double slowest(const Values& values, Time time) {
  double most = 0;
  for (const auto& value : values) most = std::max(most, time(value));
  return most;
}

}  // namespace

Network::Network(const Cluster& cluster, const Profile* profile, double efficiency, bool modelled)
    : topology_(cluster), between_(cluster.between), efficiency_(efficiency), modelled_(modelled) {
  if (profile == nullptr) return;
  const DeviceSpan all{0, cluster.num_devices()};
  // Profiles measure the groups that begin at the first device.
  const auto measured_crosses = [&](const GroupShape& group) {
    const int last = std::min((group.size - 1) * group.stride, all.end - 1);
    return topology_.node_of(0) != topology_.node_of(last);
  };
  std::map<std::tuple<Collective, int, int>, Points> sweeps;
  for (const CollectiveSample& s : profile->collectives)
    sweeps[{s.op, s.ranks, s.stride}].emplace_back(static_cast<double>(s.bytes.value()),
                                                   s.seconds.value());
  for (const auto& [key, points] : sweeps) {
    const auto [op, ranks, stride] = key;
    const GroupShape group{ranks, stride};
    measured_.push_back({op, group, measured_crosses(group), Curve(points)});
  }
  // Bandwidths of large messages speak where no sweep over sizes does; latency is then the link's.
  for (const BandwidthSample& s : profile->bandwidths) {
    const GroupShape group{s.ranks, s.stride};
    if (sweeps.contains({s.op, s.ranks, s.stride})) continue;
    const bool across = measured_crosses(group);
    const double latency =
        (across ? between_.latency : cluster.groups.front().inside.latency).value();
    constexpr double kLarge = 1e9;
    const double large = kLarge * ring_share(s.op, s.ranks) / s.bandwidth.value();
    measured_.push_back({s.op, group, across, Curve({{0.0, latency}, {kLarge, latency + large}})});
  }
}

bool Network::crosses(const GroupShape& group, const DeviceSpan& stage) const {
  return std::ranges::any_of(topology_.placements(group, stage), &GroupPlacement::crosses);
}

double Network::ring_bandwidth(const GroupPlacement& group) const {
  const double network = between_.bandwidth.value() * group.fewest;
  return (group.crosses() ? std::min(group.bandwidth, network) : group.bandwidth) * efficiency_;
}

const Curve* Network::measured(Collective op, const GroupShape& group, bool crosses_nodes) const {
  // A group counts as measured when one of its size was, on the same kind of link; of several the
  // one with the nearest stride.
  const Measured* best = nullptr;
  for (const Measured& m : measured_) {
    if (m.op != op || m.group.size != group.members() || m.crosses_nodes != crosses_nodes) continue;
    if (best == nullptr ||
        std::abs(m.group.stride - group.stride) < std::abs(best->group.stride - group.stride))
      best = &m;
  }
  return best == nullptr ? nullptr : &best->seconds;
}

double Network::modelled(CollectiveKind kind, double bytes, const GroupPlacement& group) const {
  // Links slower than this are PCIe: NVLink's first generation had 80 GB/s.
  constexpr double kBus = 70e9;
  const double inside = group.bandwidth * efficiency_;
  return collective_time(kind, bytes,
                         {.per_node = (group.size + group.nodes - 1) / group.nodes,
                          .nodes = group.nodes,
                          .inside = inside,
                          .across = ring_bandwidth(group),
                          .across_latency = group.crosses() ? between_.latency.value() : 0,
                          .bus = inside < kBus});
}

// Rings inside a node, a tree over the nodes.
double Network::gather_ring(double bytes, const GroupPlacement& group) const {
  const double latency = group.ring_latency + tree_levels(group.nodes) * between_.latency.value();
  return latency + (group.size - 1.0) / group.size * bytes / ring_bandwidth(group);
}

double Network::all_reduce(double bytes, const GroupShape& group, const DeviceSpan& stage) const {
  if (group.members() <= 1 || bytes <= 0) return 0;
  if (!measured_.empty())
    if (const Curve* m = measured(Collective::all_reduce, group, crosses(group, stage)))
      return (*m)(bytes);
  if (modelled_)
    return slowest(topology_.placements(group, stage), [&](const GroupPlacement& g) {
      return modelled(CollectiveKind::all_reduce, bytes, g);
    });
  return reduce_scatter(bytes, group, stage) + all_gather(bytes, group, stage);
}

double Network::reduce_scatter(double bytes, const GroupShape& group,
                               const DeviceSpan& stage) const {
  if (group.members() <= 1 || bytes <= 0) return 0;
  if (!measured_.empty())
    if (const Curve* m = measured(Collective::reduce_scatter, group, crosses(group, stage)))
      return (*m)(bytes);
  return all_gather(bytes, group, stage);
}

double Network::all_gather(double bytes, const GroupShape& group, const DeviceSpan& stage) const {
  if (group.members() <= 1 || bytes <= 0) return 0;
  const std::vector<GroupPlacement> placements = topology_.placements(group, stage);
  if (!measured_.empty()) {
    const bool across = std::ranges::any_of(placements, &GroupPlacement::crosses);
    if (const Curve* m = measured(Collective::all_gather, group, across)) return (*m)(bytes);
    if (const Curve* m = measured(Collective::all_reduce, group, across)) return (*m)(bytes) / 2;
  }
  return slowest(placements, [&](const GroupPlacement& g) {
    return modelled_ ? modelled(CollectiveKind::all_gather, bytes, g) : gather_ring(bytes, g);
  });
}

double Network::all_to_all(double bytes, const GroupShape& group, const DeviceSpan& stage) const {
  if (group.members() <= 1 || bytes <= 0) return 0;
  const std::vector<GroupPlacement> placements = topology_.placements(group, stage);
  if (!measured_.empty()) {
    const bool across = std::ranges::any_of(placements, &GroupPlacement::crosses);
    if (const Curve* m = measured(Collective::all_to_all, group, across)) return (*m)(bytes);
  }
  return slowest(placements, [&](const GroupPlacement& g) {
    const double n = g.size;
    const double far = (n - g.fewest) / n * bytes;
    const double latency = g.crosses() ? between_.latency.value() : g.latency;
    const double port = (n - 1) / n * bytes / (g.bandwidth * efficiency_);
    const double network = g.crosses() ? far / (between_.bandwidth.value() * efficiency_) : 0;
    return std::log2(n) * latency + std::max(port, network);
  });
}

double Network::exchange(double bytes, double far, const GroupShape& group,
                         const DeviceSpan& stage) const {
  if (bytes <= 0) return 0;
  const std::vector<GroupPlacement> placements = topology_.placements(group, stage);
  if (!measured_.empty()) {
    // A curve of all-to-all is over what a rank holds, of which it keeps its own share.
    const double held = bytes * group.members() / (group.members() - 1.0);
    const bool across = std::ranges::any_of(placements, &GroupPlacement::crosses);
    if (const Curve* m = measured(Collective::all_to_all, group, across)) return (*m)(held);
  }
  return slowest(placements, [&](const GroupPlacement& g) {
    const double latency = far > 0 ? between_.latency.value() : g.latency;
    return std::log2(static_cast<double>(g.size)) * latency +
           std::max(bytes / (g.bandwidth * efficiency_),
                    far / (between_.bandwidth.value() * efficiency_));
  });
}

double Network::hop_time(double bytes, const Hop& hop, int distance) const {
  if (const Curve* m = measured(Collective::point_to_point, {2, distance}, hop.crosses))
    return (*m)(bytes);
  return hop.latency + bytes / (hop.bandwidth * efficiency_);
}

double Network::point_to_point(double bytes, int from, int to) const {
  if (bytes <= 0) return 0;
  return hop_time(bytes, topology_.hop(from, to), std::abs(from - to));
}

double Network::ring_shift(double bytes, const GroupShape& ring, const DeviceSpan& stage) const {
  if (bytes <= 0) return 0;
  return slowest(topology_.ring_hops(ring, stage),
                 [&](const Hop& hop) { return hop_time(bytes, hop, ring.stride); });
}

double Network::transfer(double bytes, const DeviceSpan& from, const DeviceSpan& to) const {
  if (bytes <= 0) return 0;
  const int distance = std::abs(to.first - from.first);
  return slowest(topology_.transfer_hops(from, to),
                 [&](const Hop& hop) { return hop_time(bytes, hop, distance); });
}

}  // namespace braid
