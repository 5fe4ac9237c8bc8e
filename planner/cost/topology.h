#pragma once
// Which node each device sits on, and so which wires lie between the members of a group or the ends
// of a transfer. The one place that answers this: a distance in ids says nothing about nodes.

#include <compare>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/strategy/mesh.h"

namespace braid {

// How the members of one group lie on nodes.
struct GroupPlacement {
  int size = 1;             // members
  int nodes = 1;            // that hold at least one of them
  int fewest = 1;           // members on the node that holds the fewest
  double bandwidth = 0;     // bytes/s: the slowest port inside one of these nodes
  double latency = 0;       // seconds: the slowest of their links
  double ring_latency = 0;  // seconds: the slowest chain through the members on one node
  bool crosses() const { return nodes > 1; }
  auto operator<=>(const GroupPlacement&) const = default;
};

// The wire from one device to another: both ports, and the network where they are on two nodes.
struct Hop {
  bool crosses = false;
  double bandwidth = 0;  // bytes/s
  double latency = 0;    // seconds
  auto operator<=>(const Hop&) const = default;
};

class Topology {
 public:
  explicit Topology(const Cluster& cluster);

  int node_of(int device) const { return node_[static_cast<std::size_t>(device)]; }
  Hop hop(int from, int to) const;

  // Distinct placements of the groups of one shape among a stage's devices; never empty.
  std::vector<GroupPlacement> placements(const GroupShape& group, const DeviceSpan& stage) const;
  // Distinct hops from each member to the next, the last one's back to the first included.
  std::vector<Hop> ring_hops(const GroupShape& ring, const DeviceSpan& stage) const;
  // Distinct hops from the k-th device of one stage to the k-th of another.
  std::vector<Hop> transfer_hops(const DeviceSpan& from, const DeviceSpan& to) const;

  // Device types, links and alignment of a stage's devices to nodes: stages of equal signature
  // have the same placements and hops for every shape.
  std::vector<int> signature(const DeviceSpan& stage) const;

 private:
  struct NodeKind {
    int device_type;
    Link inside;
  };
  const NodeKind& kind_of(int device) const {
    return kinds_[static_cast<std::size_t>(kind_[static_cast<std::size_t>(node_of(device))])];
  }
  // Where all nodes are alike and both group and stage end where nodes do: one placement, without
  // looking at the devices. Otherwise size 0.
  GroupPlacement regular(const GroupShape& group, const DeviceSpan& stage) const;
  GroupPlacement place(const GroupShape& group, int first) const;
  // Devices of a stage after which its groups of one shape lie on nodes as before.
  int period(const GroupShape& group, const DeviceSpan& stage) const;

  Link between_;
  std::vector<NodeKind> kinds_;  // distinct
  std::vector<int> kind_;        // by node
  std::vector<int> node_;        // by device
  int width_ = 0;                // devices of a node; zero where nodes differ
};

}  // namespace braid
