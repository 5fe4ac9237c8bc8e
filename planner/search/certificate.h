#pragma once
// What can be said about a plan beside its time: bounds that hold for any plan, and why another
// lost.

#include "planner/plan/plan.h"

namespace braid {

// Seconds that no plan at all is faster than.
struct PhysicsBound {
  Seconds compute;   // FLOPs at the devices' peaks
  Seconds states;    // optimizer states through the devices' memory
  Seconds crossing;  // what must cross a link when more than one device works
  Seconds total() const;
};
PhysicsBound physics_bound(const Model& model, const Cluster& cluster, std::int64_t global_batch,
                           Precision precision);

// The term that costs `slower` most against `faster`, in words.
std::string why_slower(const Plan& slower, const Plan& faster);

}  // namespace braid
