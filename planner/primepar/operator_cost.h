#pragma once
// What one operator costs under a partition, term by term, on a cluster's links.

#include "planner/cluster/cluster.h"
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

// 2^bits devices, the first bits choosing the node. A profile replaces assumed links by measured
// ones.
class PrimeparMachine {
 public:
  // Throws Error where the devices are no power of two up to 64, or nodes differ or cut a bit.
  PrimeparMachine(const Cluster& cluster, Precision precision, const Assumptions& assumptions = {});
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
  // One device to another, all at once.
  double transfer(double bytes, bool across) const;
  // Seconds a byte that comes from inside the node, or from another.
  double near_byte() const { return near_byte_; }
  double far_byte() const { return far_byte_; }
  const Network& network() const { return network_; }
  DeviceSpan span() const { return {0, devices()}; }

 private:
  Cluster cluster_;
  Network network_;
  int bits_ = 0, in_node_bits_ = 0, width_ = 1;
  double matmul_flops_, attention_flops_, memory_bandwidth_;
  double near_byte_ = 0, far_byte_ = 0;
};

inline constexpr double kStateBytes = 16;  // a parameter's: fp32 4+4+8, bf16 2+2+4+8

OperatorCost operator_cost(const Operator& op, const Partition& partition, const PrimeparTask& task,
                           const PrimeparMachine& machine);

}  // namespace braid
