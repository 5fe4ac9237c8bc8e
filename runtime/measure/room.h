#pragma once
// Whether a plan fits into the memory that is free where its ranks run.

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "planner/core/error.h"
#include "planner/core/units.h"
#include "planner/plan/plan.h"
#include "runtime/comm/group.h"
#include "runtime/train/dry_run.h"

namespace braid::measure {

// Ranks whose weights, gradients, optimizer states and activations alone are more than is free: of
// the host that CPU ranks share, or of the GPU of one or several ranks.
struct Shortage {
  std::string place;  // "the memory of host-a"
  int ranks = 1;      // that share it
  Bytes needed, free;
};
// The place that lacks most; nothing where the plan fits. Each rank plays its own share without
// memory (train::dry_run), so that nothing is allocated. Nothing either where the world has another
// size than the plan: that is for train() to tell. Collective, and the same on all ranks.
std::optional<Shortage> find_shortage(const Plan& plan, const train::DryOptions& options,
                                      comm::Group& world, c10::Device device);

// As a refusal; `where` names the plan.
Mistake mistake_of(const Shortage& shortage, const std::string& where);

}  // namespace braid::measure
