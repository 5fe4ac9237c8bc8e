#pragma once
// A simulation as a timeline: what `braid train --trace` records, as it was predicted.

#include <string>

#include "planner/plan/plan.h"
#include "planner/simulate/event_simulator.h"
#include "planner/simulate/simulator.h"

namespace braid {

// A process for each stage. Inside an operation come the chunk's layers in order, each with its
// compute and then what it communicates exposed. A plan knows these times for whole stages only:
// layers get shares of compute by their FLOPs, of communication by whether (and, for parameters, of
// how many) they take part. The simulation must have kept its events.
std::string trace_json(const Simulation& simulation, const Plan& plan);
// A process for each stage of each class. Gathers and reductions that were played beside compute
// have slices of their own; the slices of a pass are stretched over the waits inside it.
std::string trace_json(const EventSimulation& simulation, const EventInput& input,
                       const Plan& plan);

}  // namespace braid
