#pragma once
// A plan as input of the event simulator: what its prediction has summed up is taken apart again
// into compute, messages and links.

#include <vector>

#include "planner/plan/plan.h"
#include "planner/simulate/event_simulator.h"

namespace braid {

// A rank whose compute takes `factor` times as long.
struct Straggler {
  int rank = 0;
  double factor = 1;
};
// A share of all ranks, evenly spread; at least one.
std::vector<Straggler> spread_stragglers(double share, double factor, int devices);

struct EventOptions {
  // Links are shared, and gathers and sums of gradients run on a stream beside compute. Otherwise
  // what the plan found them to leave exposed stays part of the stages' times.
  bool contention = false;
  // Of a node, each as fast as the cluster's network; zero: every device has its own.
  int network_cards = 0;
  Overlap overlap = {};  // while a device computes and communicates; needs contention
  std::vector<Straggler> stragglers = {};
  // A stage is priced by its slowest kind of device: pipelines on faster ones take less, by peak
  // FLOPs.
  bool device_types = false;
};

// The plan must be priced; ranks must exist.
EventInput event_input(const Plan& plan, const EventOptions& options);

// Pipelines that do not meet within a pass: each has its own data, and its ranks in all stages. A
// layer that spreads samples over more ranks, or experts over several, ties them together.
struct Pipelines {
  int count = 1;
  std::vector<int> of_device;
};
Pipelines independent_pipelines(const Plan& plan);

}  // namespace braid
