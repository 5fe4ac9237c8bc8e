#pragma once
// Collectives on the links that a group's members really share: measured where a profile knows the
// group, otherwise rings on the cluster's links.

#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/cost/collective_model.h"
#include "planner/profile/fit.h"
#include "planner/profile/profile.h"
#include "planner/strategy/mesh.h"

namespace braid {

// What each member of a group can send while all groups of its shape talk at once.
struct GroupLink {
  double bandwidth = 0;  // bytes/s of a ring through the group
  double latency = 0;    // of one step
  int members_per_node = 1;
  bool crosses_nodes = false;
};

class Network {
 public:
  // `modelled`: by algorithm and protocol (collective_model.h) instead of a ring's formula.
  Network(const Cluster& cluster, const Profile* profile, double efficiency, bool modelled = false);

  // Seconds. `bytes` is the whole tensor (the gathered one, the one to reduce).
  double all_reduce(double bytes, GroupShape group, DeviceSpan where) const;
  double all_gather(double bytes, GroupShape group, DeviceSpan where) const;
  double reduce_scatter(double bytes, GroupShape group, DeviceSpan where) const;
  // `bytes` is what one rank holds before (and after).
  double all_to_all(double bytes, GroupShape group, DeviceSpan where) const;
  double point_to_point(double bytes, int distance, DeviceSpan where) const;

  GroupLink link(GroupShape group, DeviceSpan where) const;

 private:
  struct Measured {
    Collective op;
    GroupShape group;
    bool crosses_nodes;
    Curve seconds;  // over bytes
  };
  double modelled(CollectiveKind kind, double bytes, GroupShape group, DeviceSpan where) const;
  const Curve* measured(Collective op, GroupShape group, bool crosses_nodes) const;
  bool crosses(GroupShape group) const;

  const Cluster& cluster_;
  double efficiency_;
  bool modelled_;
  int width_;  // devices of a node
  std::vector<Measured> measured_;
};

}  // namespace braid
