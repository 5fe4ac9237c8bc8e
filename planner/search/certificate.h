#pragma once
// What can be said about a plan beside its time: bounds that hold for any plan, and why another
// lost.

#include "planner/plan/plan.h"

namespace braid {

// No plan at all is faster: FLOPs at the devices' peaks, optimizer states through their memory, and
// what must cross a link when more than one device works.
Seconds physics_bound(const Model& model, const Cluster& cluster, std::int64_t global_batch,
                      Precision precision);

// The term that costs `slower` most against `faster`, in words.
std::string why_slower(const Plan& slower, const Plan& faster);

}  // namespace braid
