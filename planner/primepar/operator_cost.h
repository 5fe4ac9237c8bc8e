#pragma once
// What one operator costs under a partition, term by term, on a cluster's links.

#include <optional>

#include "planner/cluster/cluster.h"
#include "planner/core/error.h"
#include "planner/cost/assumptions.h"
#include "planner/cost/network.h"
#include "planner/primepar/layer_graph.h"
#include "planner/primepar/square.h"

namespace braid {

// Forward and backward of one micro-batch on one device.
struct OperatorCost {
  double compute = 0;          // seconds of products, or of memory traffic
  double ring_hidden = 0;      // transfers of a square behind its products
  double ring_exposed = 0;     // and what sticks out
  double all_reduce = 0;       // of outputs and their gradients
  double gradient_reduce = 0;  // of weight gradients: this micro-batch's share of the step's

  double states = 0;     // bytes: weights, gradients, Adam's moments and master weights
  double stash = 0;      // bytes kept from forward to backward
  double workspace = 0;  // bytes at the operator's worst moment: of a layer the most, not the sum

  double time() const { return compute + ring_exposed + all_reduce + gradient_reduce; }
  double exposed() const { return ring_exposed + all_reduce + gradient_reduce; }
};

// What a collective that crosses nodes gets of the network.
enum class NetworkShare {
  of_members,  // the shares of all its members in a node: rings enter through each of them
  of_one,      // one device's share, however many there are
};

// 2^bits devices, the first bits choosing the node. A profile's collectives take the place of the
// cluster's links; products and memory traffic run at assumed shares of the device's peaks.
class PrimeparMachine {
 public:
  // Where the first `devices` are no power of two up to 64, or nodes differ or cut a bit.
  static std::optional<Mistake> fault(const Cluster& cluster, int devices);
  // Throws Error where there is a fault.
  PrimeparMachine(const Cluster& cluster, Precision precision, const Assumptions& assumptions = {},
                  NetworkShare share = NetworkShare::of_members, const Profile* profile = nullptr);
  PrimeparMachine(const PrimeparMachine&) = delete;
  PrimeparMachine& operator=(const PrimeparMachine&) = delete;

  int bits() const { return bits_; }
  int devices() const { return 1 << bits_; }
  int node_width() const { return width_; }
  double matmul_flops() const { return matmul_flops_; }
  double attention_flops() const { return attention_flops_; }
  double memory_bandwidth() const { return memory_bandwidth_; }
  bool crosses(int bit) const { return bit < bits_ - in_node_bits_; }

  // A group of the devices that differ in these bits only.
  double all_reduce(double bytes, const std::vector<int>& group_bits) const;
  // The same for strided groups.
  double all_reduce(double bytes, GroupShape group) const;
  double all_gather(double bytes, GroupShape group) const;
  double reduce_scatter(double bytes, GroupShape group) const;
  // One device to another, all at once.
  double transfer(double bytes, bool across) const;
  // Seconds a byte that comes from inside the node, or from another.
  double near_byte() const { return near_byte_; }
  double far_byte() const { return far_byte_; }

 private:
  DeviceSpan span() const { return {0, devices()}; }
  GroupShape shared(GroupShape group) const;

  Cluster cluster_;
  Network network_;
  NetworkShare share_;
  int bits_ = 0, in_node_bits_ = 0, width_ = 1;
  double matmul_flops_, attention_flops_, memory_bandwidth_;
  double near_byte_ = 0, far_byte_ = 0;
};

inline constexpr double kStateBytes = 16;  // a parameter's: fp32 4+4+8, bf16 2+2+4+8

OperatorCost operator_cost(const Operator& op, const Partition& partition, const PrimeparTask& task,
                           const PrimeparMachine& machine);

}  // namespace braid
