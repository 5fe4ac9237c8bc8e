#pragma once
// A step of a plan without memory, data or neighbours: what each rank would hold.

#include "planner/plan/plan.h"
#include "runtime/train/held_memory.h"
#include "runtime/train/trainer.h"

namespace braid::train {

struct DryOptions {
  RunPrecision precision = RunPrecision::plan;
  double dropout = 0;
};

// Plays one step of this device's share on tensors of the device meta. Micro-batches beyond those
// that fill the pipeline repeat what came before and are left out.
HeldMemory dry_run(const Plan& plan, int device, const DryOptions& options);

}  // namespace braid::train
