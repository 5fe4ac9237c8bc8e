#pragma once
// A simulation as a timeline for chrome://tracing or Perfetto.

#include <string>

#include "planner/simulate/simulator.h"

namespace braid {

// Trace-event JSON: a process for each stage, with threads for compute, waiting receives and sends.
// The simulation must have kept its events.
std::string trace_json(const Simulation& simulation, const PipelineShape& shape);

}  // namespace braid
