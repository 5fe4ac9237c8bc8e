#pragma once
// What a run's devices send each other, priced on the links of its setup.

#include "planner/cost/collective_model.h"
#include "planner/validate/split.h"

namespace braid {

// Every stride-th device, the first of them wherever a stage begins.
struct DeviceGroup {
  int size = 1, stride = 1;
};

class RunLinks {
 public:
  RunLinks(const RunSplit& split, const RunSetup& setup) : split_(split), setup_(setup) {}

  // A collective among devices of one stage.
  double all_reduce(double bytes, DeviceGroup group, int stage) const {
    return collective(CollectiveKind::all_reduce, bytes, group, stage);
  }
  double all_gather(double bytes, DeviceGroup group, int stage) const {
    return collective(CollectiveKind::all_gather, bytes, group, stage);
  }

  // A hidden state from a stage to the next: all of it from every tensor rank, or a part from each.
  double send(double hidden_bytes, int stage) const;

  // Between each device of the first stage and its peer in the last.
  double between_ends(double bytes, int stage) const;

 private:
  double collective(CollectiveKind kind, double bytes, DeviceGroup group, int stage) const;
  int devices_of(int stage) const;
  int last_node_of(int stage) const;
  const Fabric& fabric_of(int stage) const;
  double send_rate(int stage) const;

  const RunSplit& split_;
  const RunSetup& setup_;
};

}  // namespace braid
