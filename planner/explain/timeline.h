#pragma once
// A simulated iteration as text: a row for each stage, time from left to right.

#include <string>

#include "planner/core/json_fwd.h"
#include "planner/explain/layout.h"
#include "planner/simulate/simulator.h"

namespace braid {

// The simulation must have kept its events. An iteration of many micro-batches is shown by its
// beginning and its end.
std::string render_timeline(const Simulation& simulation, const PipelineShape& shape,
                            const RenderOptions& options);
// What every stage did, as a table.
std::string render_use(const Simulation& simulation, const RenderOptions& options);
Json simulation_json(const Simulation& simulation);

}  // namespace braid
