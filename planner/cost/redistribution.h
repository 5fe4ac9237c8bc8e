#pragma once
// How much of an activation changes place between two layouts of a stage, and how much of that
// leaves a node.

#include <map>
#include <mutex>
#include <tuple>

#include "planner/cost/topology.h"
#include "planner/strategy/mesh.h"
#include "planner/strategy/strategy.h"

namespace braid {

// Shares of what each device holds before and after, for the one that sends or receives most.
struct Redistribution {
  double moved = 0;  // to any other device
  double far = 0;    // to or from devices on other nodes
  GroupShape among;  // the devices that exchange with each other
};

// Samples are cut by dp; tokens by cp, under `zigzag` (causal models) in an early and a late block
// each, and then by tp. Layouts that also cut the hidden width (grids) are assumed to exchange
// everything among the devices that share a sample. At most 64 devices of a stage are looked at,
// spread evenly.
Redistribution redistribution(const ActivationLayout& from, const ActivationLayout& to, bool zigzag,
                              const Mesh& mesh, const DeviceSpan& stage, const Topology& topology);

// Keeps what was computed: a search asks for the same ones at every size of a micro-batch. Any
// thread may ask.
class Redistributions {
 public:
  Redistributions(const Topology& topology, bool zigzag) : topology_(topology), zigzag_(zigzag) {}

  Redistribution of(const ActivationLayout& from, const ActivationLayout& to, const Mesh& mesh,
                    int stage) const;

 private:
  using Key = std::tuple<ActivationLayout, ActivationLayout, Mesh, int>;
  const Topology& topology_;
  bool zigzag_;
  mutable std::mutex mutex_;
  mutable std::map<Key, Redistribution> known_;
};

}  // namespace braid
