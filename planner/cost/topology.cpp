#include "planner/cost/topology.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace braid {

namespace {

template <class Value>
void add_distinct(std::vector<Value>& values, const Value& value) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

// The first member of each group of a shape among the first `devices` devices of a stage.
template <class Visit>
void each_group(const GroupShape& group, const DeviceSpan& stage, int devices, Visit visit) {
  const int stride = std::max(1, group.stride / stage.stride);
  const int block_stride = std::max(1, group.block_stride / stage.stride);
  for (int local = 0; local < devices; ++local) {
    const bool first = local / stride % group.size == 0;
    const bool first_block = group.blocks == 1 || local / block_stride % group.blocks == 0;
    if (first && first_block) visit(stage.at(local));
  }
}

}  // namespace

Topology::Topology(const Cluster& cluster) : between_(cluster.between) {
  width_ = cluster.groups.front().devices;
  for (const NodeGroup& nodes : cluster.groups) {
    const auto same = [&](const NodeKind& kind) {
      return kind.device_type == nodes.device_type &&
             kind.inside.bandwidth == nodes.inside.bandwidth &&
             kind.inside.latency == nodes.inside.latency;
    };
    const auto known = std::ranges::find_if(kinds_, same);
    const auto kind = static_cast<int>(known - kinds_.begin());
    if (known == kinds_.end()) kinds_.push_back({nodes.device_type, nodes.inside});
    if (nodes.devices != width_) width_ = 0;
    for (int node = 0; node < nodes.count; ++node) {
      node_.insert(node_.end(), static_cast<std::size_t>(nodes.devices),
                   static_cast<int>(kind_.size()));
      kind_.push_back(kind);
    }
  }
  if (kinds_.size() > 1) width_ = 0;
}

Hop Topology::hop(int from, int to) const {
  const Link& a = kind_of(from).inside;
  const Link& b = kind_of(to).inside;
  Hop hop{node_of(from) != node_of(to), std::min(a.bandwidth, b.bandwidth).value(),
          std::max(a.latency, b.latency).value()};
  if (hop.crosses) {
    hop.bandwidth = std::min(hop.bandwidth, between_.bandwidth.value());
    hop.latency = between_.latency.value();
  }
  return hop;
}

GroupPlacement Topology::regular(const GroupShape& group, const DeviceSpan& stage) const {
  GroupPlacement placement{.size = 0};
  if (width_ == 0 || group.blocks > 1) return placement;
  const std::int64_t extent = std::int64_t{group.size} * group.stride;
  const int base = stage.first - stage.first % stage.stride;
  const Link& inside = kinds_.front().inside;
  placement.bandwidth = inside.bandwidth.value();
  placement.latency = inside.latency.value();
  if (width_ % extent == 0 && base % extent == 0) {
    placement.fewest = placement.size = group.size;
  } else if (extent % width_ == 0 && base % width_ == 0 &&
             (width_ % group.stride == 0 || group.stride % width_ == 0)) {
    placement.size = group.size;
    placement.fewest = std::max(1, width_ / group.stride);
    placement.nodes = group.size / placement.fewest;
  }
  placement.ring_latency = (placement.fewest - 1) * placement.latency;
  return placement;
}

int Topology::period(const GroupShape& group, const DeviceSpan& stage) const {
  if (width_ == 0) return stage.count();
  const std::int64_t extent = std::max(std::int64_t{group.size} * group.stride,
                                       std::int64_t{group.blocks} * group.block_stride);
  const std::int64_t ids =
      std::lcm(std::lcm(extent, std::int64_t{width_}), std::int64_t{stage.stride});
  return static_cast<int>(std::min<std::int64_t>(stage.count(), ids / stage.stride));
}

GroupPlacement Topology::place(const GroupShape& group, int first) const {
  std::vector<int> devices;
  for (int block = 0; block < group.blocks; ++block)
    for (int k = 0; k < group.size; ++k)
      devices.push_back(first + block * group.block_stride + k * group.stride);
  std::ranges::sort(devices);
  const auto size = static_cast<int>(devices.size());
  GroupPlacement placement{.size = size, .nodes = 0, .fewest = size};
  for (std::size_t begin = 0, end = 0; begin < devices.size(); begin = end) {
    while (end < devices.size() && node_of(devices[end]) == node_of(devices[begin])) ++end;
    const auto members = static_cast<int>(end - begin);
    const Link& inside = kind_of(devices[begin]).inside;
    const double bandwidth = inside.bandwidth.value();
    placement.bandwidth =
        placement.nodes == 0 ? bandwidth : std::min(placement.bandwidth, bandwidth);
    placement.latency = std::max(placement.latency, inside.latency.value());
    placement.fewest = std::min(placement.fewest, members);
    placement.ring_latency =
        std::max(placement.ring_latency, (members - 1) * inside.latency.value());
    ++placement.nodes;
  }
  return placement;
}

std::vector<GroupPlacement> Topology::placements(const GroupShape& group,
                                                 const DeviceSpan& stage) const {
  if (const GroupPlacement all = regular(group, stage); all.size > 0) return {all};
  std::vector<GroupPlacement> distinct;
  each_group(group, stage, period(group, stage),
             [&](int first) { add_distinct(distinct, place(group, first)); });
  return distinct;
}

std::vector<Hop> Topology::ring_hops(const GroupShape& ring, const DeviceSpan& stage) const {
  std::vector<Hop> distinct;
  // Hops to the next member repeat where members lie on nodes as they did before.
  const int hops =
      width_ == 0 ? ring.size : std::min(ring.size, std::lcm(width_, ring.stride) / ring.stride);
  each_group(ring, stage, period(ring, stage), [&](int first) {
    const int last = first + (ring.size - 1) * ring.stride;
    for (int k = 0; k < hops && k + 1 < ring.size; ++k)
      add_distinct(distinct, hop(first + k * ring.stride, first + (k + 1) * ring.stride));
    add_distinct(distinct, hop(last, first));
  });
  return distinct;
}

std::vector<Hop> Topology::transfer_hops(const DeviceSpan& from, const DeviceSpan& to) const {
  std::vector<Hop> distinct;
  const int devices = width_ == 0
                          ? from.count()
                          : std::min(from.count(), std::lcm(width_, from.stride) / from.stride);
  for (int k = 0; k < devices; ++k) add_distinct(distinct, hop(from.at(k), to.at(k)));
  return distinct;
}

std::vector<int> Topology::signature(const DeviceSpan& stage) const {
  // Runs of the stage's devices on one node, equal neighbouring runs counted: kind, devices of the
  // run, runs.
  std::vector<int> runs;
  for (int begin = 0, end = 0; begin < stage.count(); begin = end) {
    const int node = node_of(stage.at(begin));
    while (end < stage.count() && node_of(stage.at(end)) == node) ++end;
    const int kind = kind_[static_cast<std::size_t>(node)];
    const std::size_t size = runs.size();
    if (size >= 3 && runs[size - 3] == kind && runs[size - 2] == end - begin) {
      ++runs.back();
    } else {
      runs.insert(runs.end(), {kind, end - begin, 1});
    }
  }
  return runs;
}

}  // namespace braid
