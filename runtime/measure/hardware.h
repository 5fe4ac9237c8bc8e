#pragma once
// Measures the hardware under a world: devices, links, and how the two disturb each other. What a
// model does on it is layers.h's.

#include "planner/profile/profile.h"
#include "runtime/comm/bootstrap.h"
#include "runtime/measure/bench.h"
#include "runtime/measure/machine.h"

namespace braid::measure {

struct HardwareOptions {
  Precision precision = Precision::bf16;           // of activations and weights
  Precision gradient_precision = Precision::fp32;  // in which sums travel
  Bytes largest_message{std::int64_t{1} << 30};
  Bytes memory{0};  // of one device; 0: what it has
  Bytes room{0};    // that one tensor may take; 0: an eighth of what is free
  comm::BackendKind backend = comm::BackendKind::in_process;  // of the world: one of the facts
};

// The machine's nodes, devices and memory (`memory` of each device where it is not 0) before
// anything was measured: all rates are equal guesses, and nothing is gone before the first tensor.
// A plan that exceeds its memory exceeds that of the measured cluster too.
Cluster unmeasured_cluster(const Machine& machine, Bytes memory);

// Collective, and the same on all ranks. What the bench's limit leaves out is missing; without any
// rate of a device there is no cluster.
Profile measure_hardware(Bench& bench, const HardwareOptions& options);

}  // namespace braid::measure
