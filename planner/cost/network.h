#pragma once
// Collectives and transfers on the wires that their devices really share: measured where a profile
// knows the group, otherwise rings on the cluster's links.
//
// The wires: each device sends and receives through a port of its node's link bandwidth; what
// leaves the node also passes the device's own share of the network. All groups of one shape in a
// stage communicate at the same time, and the stage waits for the slowest of them.

#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/cost/collective_model.h"
#include "planner/cost/topology.h"
#include "planner/profile/fit.h"
#include "planner/profile/profile.h"
#include "planner/strategy/mesh.h"

namespace braid {

class Network {
 public:
  // `modelled`: by algorithm and protocol (collective_model.h) instead of a ring's formula.
  Network(const Cluster& cluster, const Profile* profile, double efficiency, bool modelled = false);

  // Seconds. `bytes` is the unsharded tensor: the gathered one, the one to reduce.
  double all_reduce(double bytes, const GroupShape& group, const DeviceSpan& stage) const;
  double all_gather(double bytes, const GroupShape& group, const DeviceSpan& stage) const;
  double reduce_scatter(double bytes, const GroupShape& group, const DeviceSpan& stage) const;
  // `bytes` is what one rank holds before (and after).
  double all_to_all(double bytes, const GroupShape& group, const DeviceSpan& stage) const;
  // One device to another.
  double point_to_point(double bytes, int from, int to) const;
  // Every member of a ring to the next: the slowest hop.
  double ring_shift(double bytes, const GroupShape& ring, const DeviceSpan& stage) const;
  // Each device of a stage to its peer in another: the slowest pair.
  double transfer(double bytes, const DeviceSpan& from, const DeviceSpan& to) const;
  // A general exchange among devices of a stage, of which the busiest sends `bytes` in all and
  // `far` to other nodes. `group`: the widest set of devices that exchange with each other.
  double exchange(double bytes, double far, const GroupShape& group, const DeviceSpan& stage) const;

  const Topology& topology() const { return topology_; }

 private:
  struct Measured {
    Collective op;
    GroupShape group;
    bool crosses_nodes;
    Curve seconds;  // over bytes
  };
  double gather_ring(double bytes, const GroupPlacement& group) const;
  double modelled(CollectiveKind kind, double bytes, const GroupPlacement& group) const;
  double hop_time(double bytes, const Hop& hop, int distance) const;
  const Curve* measured(Collective op, const GroupShape& group, bool crosses_nodes) const;
  bool crosses(const GroupShape& group, const DeviceSpan& stage) const;
  // Bytes/s of a ring through the group: it enters a node once for each member on the node with the
  // fewest, each through its own share of the network.
  double ring_bandwidth(const GroupPlacement& group) const;

  Topology topology_;
  Link between_;
  double efficiency_;
  bool modelled_;
  std::vector<Measured> measured_;
};

}  // namespace braid
