#pragma once
// The machine as devices and wires. Each device has a port into its node's link and a port out of
// it; what leaves the node passes the device's own share of the network as well, in and out. A wire
// carries Assumptions::link_efficiency of its nominal bandwidth.

#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/strategy/mesh.h"
#include "planner/strategy/strategy.h"

namespace braid::referee {

struct Message {
  int from = 0, to = 0;  // device ids
  double bytes = 0;
};
using Messages = std::vector<Message>;

class Wires {
 public:
  explicit Wires(const Cluster& cluster);

  int num_devices() const { return static_cast<int>(devices_.size()); }
  int node_of(int device) const { return at(device).node; }
  const DeviceType& type_of(int device) const { return *at(device).type; }
  const Link& inside(int device) const { return at(device).inside; }
  const Link& between() const { return between_; }
  bool crosses(int a, int b) const { return node_of(a) != node_of(b); }
  // Seconds ahead of the first byte from a to b.
  double latency(int a, int b) const;

  // Seconds that each list of messages takes while all lists flow at once: its busiest wire's bytes
  // over that wire's bandwidth. Latency is not included.
  std::vector<double> flow(const std::vector<Messages>& lists) const;
  // Seconds of `bytes` through one device's share of the network.
  double network_seconds(double bytes) const;

 private:
  struct Device {
    int node = 0;
    const DeviceType* type = nullptr;
    Link inside;
  };
  const Device& at(int device) const { return devices_[static_cast<std::size_t>(device)]; }

  std::vector<Device> devices_;
  Link between_;
};

// A device's coordinates in its stage.
struct Coordinates {
  int device = 0;
  int dp = 0, cp = 0, tp = 0;
};

// The devices of one stage in the order of their ids. The name of the mesh order is its definition:
// ids count up along its axes, the rightmost axis fastest.
std::vector<Coordinates> devices_of_stage(int devices, int stages, MeshOrder order, int stage,
                                          const Strategy& strategy);

}  // namespace braid::referee
