#pragma once
// What an event simulation adds to a timeline: exposed communication by kind, waits for links and
// slower replicas, and what overlap costs.

#include <string>

#include "planner/core/json_fwd.h"
#include "planner/explain/layout.h"
#include "planner/simulate/event_simulator.h"

namespace braid {

// The class whose pipelines work longest: what the iteration waits for.
std::size_t slowest_class(const EventSimulation& simulation);
// A row for each stage of each class; parts that are nowhere above zero are left out.
std::string render_streams(const EventSimulation& simulation, const EventInput& input,
                           const RenderOptions& options);
// The quick simulator's fields for the slowest class, and beside them every device's parts.
Json event_simulation_json(const EventSimulation& simulation, const EventInput& input);

}  // namespace braid
