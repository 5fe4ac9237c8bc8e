#pragma once
// How long a collective takes on links nobody has measured: the fastest of the algorithms and
// protocols that NCCL chooses from. Small messages are latency, and take the protocol that trades
// bandwidth for it; large ones are bandwidth.

namespace braid {

enum class CollectiveKind {
  all_reduce,
  all_gather
};  // a reduce-scatter is an all-gather backwards

// A group with `per_node` members on each of `nodes` nodes.
struct CollectiveSite {
  int per_node = 1;
  int nodes = 1;
  double inside = 0;          // bytes/s of a ring inside a node
  double across = 0;          // bytes/s of a ring through all nodes, all members' cards together
  double inside_latency = 0;  // seconds of a step beyond what the protocols below take
  double across_latency = 0;
  bool bus = false;  // PCIe inside a node, not NVLink

  int size() const { return per_node * nodes; }
};

// `bytes` is the whole tensor: the one to reduce, or the gathered one.
double collective_time(CollectiveKind kind, double bytes, const CollectiveSite& site);

}  // namespace braid
