#include "planner/cost/network.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>

namespace braid {

Network::Network(const Cluster& cluster, const Profile* profile, double efficiency, bool modelled)
    : cluster_(cluster),
      efficiency_(efficiency),
      modelled_(modelled),
      width_(cluster.node_width()) {
  if (profile == nullptr) return;
  std::map<std::tuple<Collective, int, int>, Points> sweeps;
  for (const CollectiveSample& s : profile->collectives)
    sweeps[{s.op, s.ranks, s.stride}].emplace_back(static_cast<double>(s.bytes.value()),
                                                   s.seconds.value());
  for (const auto& [key, points] : sweeps) {
    const auto [op, ranks, stride] = key;
    const GroupShape group{ranks, stride};
    measured_.push_back({op, group, crosses(group), Curve(points)});
  }
  // Bandwidths of large messages speak where no sweep over sizes does; latency is then the link's.
  for (const BandwidthSample& s : profile->bandwidths) {
    const GroupShape group{s.ranks, s.stride};
    if (sweeps.contains({s.op, s.ranks, s.stride})) continue;
    const double factor = s.op == Collective::point_to_point ? 1.0 : 2.0 * (s.ranks - 1) / s.ranks;
    const double latency = link(group, {0, cluster.num_devices()}).latency;
    constexpr double kLarge = 1e9;
    measured_.push_back(
        {s.op, group, crosses(group),
         Curve({{0.0, latency}, {kLarge, latency + kLarge * factor / s.bandwidth.value()}})});
  }
}

bool Network::crosses(GroupShape group) const {
  return static_cast<std::int64_t>(group.size) * group.stride > width_ && cluster_.num_nodes() > 1;
}

GroupLink Network::link(GroupShape group, DeviceSpan where) const {
  // The slowest node that the stage touches sets the pace.
  Link inside = cluster_.groups.front().inside;
  if (!cluster_.uniform()) {
    int first = 0;
    bool any = false;
    for (const NodeGroup& nodes : cluster_.groups) {
      const int end = first + nodes.count * nodes.devices;
      if (where.first < end && where.end > first) {
        if (!any || nodes.inside.bandwidth < inside.bandwidth) inside = nodes.inside;
        any = true;
      }
      first = end;
    }
  }
  GroupLink result;
  result.crosses_nodes = crosses(group);
  result.members_per_node = result.crosses_nodes ? std::max(1, width_ / group.stride) : group.size;
  if (!result.crosses_nodes) {
    result.bandwidth = inside.bandwidth.value() * efficiency_;
    result.latency = inside.latency.value();
    return result;
  }
  // Every member drives its own share of the network, so a ring enters a node through all of them.
  result.bandwidth = std::min(inside.bandwidth.value(),
                              cluster_.between.bandwidth.value() * result.members_per_node) *
                     efficiency_;
  result.latency = cluster_.between.latency.value();
  return result;
}

const Curve* Network::measured(Collective op, GroupShape group, bool crosses_nodes) const {
  // A group counts as measured when one of its size was, on the same kind of link; of several the
  // one with the nearest stride.
  const Measured* best = nullptr;
  for (const Measured& m : measured_) {
    if (m.op != op || m.group.size != group.size || m.crosses_nodes != crosses_nodes) continue;
    if (best == nullptr ||
        std::abs(m.group.stride - group.stride) < std::abs(best->group.stride - group.stride))
      best = &m;
  }
  return best == nullptr ? nullptr : &best->seconds;
}

double Network::modelled(CollectiveKind kind, double bytes, GroupShape group,
                         DeviceSpan where) const {
  // Links slower than this are PCIe: NVLink's first generation had 80 GB/s.
  constexpr double kBus = 70e9;
  const GroupLink l = link(group, where);
  const GroupLink inside = link({std::min(group.size, width_), 1}, where);
  const int nodes = l.crosses_nodes ? std::max(1, group.size / l.members_per_node) : 1;
  return collective_time(kind, bytes,
                         {.per_node = group.size / nodes,
                          .nodes = nodes,
                          .inside = inside.bandwidth,
                          .across = l.bandwidth,
                          .across_latency = l.crosses_nodes ? l.latency : 0,
                          .bus = inside.bandwidth < kBus});
}

double Network::all_reduce(double bytes, GroupShape group, DeviceSpan where) const {
  if (group.size <= 1 || bytes <= 0) return 0;
  if (const Curve* m = measured(Collective::all_reduce, group, crosses(group))) return (*m)(bytes);
  if (modelled_) return modelled(CollectiveKind::all_reduce, bytes, group, where);
  return reduce_scatter(bytes, group, where) + all_gather(bytes, group, where);
}

double Network::reduce_scatter(double bytes, GroupShape group, DeviceSpan where) const {
  if (group.size <= 1 || bytes <= 0) return 0;
  if (const Curve* m = measured(Collective::reduce_scatter, group, crosses(group)))
    return (*m)(bytes);
  return all_gather(bytes, group, where);
}

double Network::all_gather(double bytes, GroupShape group, DeviceSpan where) const {
  if (group.size <= 1 || bytes <= 0) return 0;
  const bool across = crosses(group);
  if (const Curve* m = measured(Collective::all_gather, group, across)) return (*m)(bytes);
  if (const Curve* m = measured(Collective::all_reduce, group, across)) return (*m)(bytes) / 2;
  if (modelled_) return modelled(CollectiveKind::all_gather, bytes, group, where);
  const GroupLink l = link(group, where);
  // Rings inside a node, trees between nodes.
  const int nodes = std::max(1, group.size / l.members_per_node);
  const auto levels = static_cast<int>(std::bit_width(static_cast<unsigned>(nodes - 1)));
  const int steps = l.members_per_node - 1 + levels;
  return steps * l.latency + (group.size - 1.0) / group.size * bytes / l.bandwidth;
}

double Network::all_to_all(double bytes, GroupShape group, DeviceSpan where) const {
  if (group.size <= 1 || bytes <= 0) return 0;
  const bool across = crosses(group);
  if (const Curve* m = measured(Collective::all_to_all, group, across)) return (*m)(bytes);
  const GroupLink l = link(group, where);
  const double n = group.size;
  const double near = (l.members_per_node - 1) / n * bytes;
  const double far = (n - l.members_per_node) / n * bytes;
  const double inside = link({2, 1}, where).bandwidth;
  const double network = cluster_.between.bandwidth.value() * efficiency_;
  return std::log2(n) * l.latency + std::max(near / inside, across ? far / network : 0.0);
}

double Network::point_to_point(double bytes, int distance, DeviceSpan where) const {
  if (bytes <= 0) return 0;
  const bool across = distance >= width_ && cluster_.num_nodes() > 1;
  if (const Curve* m = measured(Collective::point_to_point, {2, distance}, across))
    return (*m)(bytes);
  const GroupLink l = link({2, distance}, where);
  const double bandwidth = across ? cluster_.between.bandwidth.value() * efficiency_ : l.bandwidth;
  return (across ? cluster_.between.latency.value() : l.latency) + bytes / bandwidth;
}

}  // namespace braid
