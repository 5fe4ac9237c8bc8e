#pragma once
// Plays a schedule on a clock. A stage has one compute stream that runs its list in order. A send
// leaves when it is reached and arrives one transfer later without holding the stream (links are
// not shared); a receive holds the stream until the arrival; an update waits until all stages have
// reduced, since the gradient norm needs them all.

#include <span>
#include <vector>

#include "planner/cost/pipeline.h"
#include "planner/simulate/schedule.h"

namespace braid {

struct SimulationOptions {
  bool events = false;  // keep every operation with its times
};

struct SimulationEvent {
  int stage = 0;
  Op op;
  Seconds start;
  Seconds end;  // of a send: the arrival

  constexpr bool operator==(const SimulationEvent&) const = default;
};

// Where one stage's iteration goes; the parts add up to the iteration.
struct StageUse {
  Seconds forward, backward_input, backward_weight, reduce, update;
  Seconds bubble;  // nothing to compute: waiting for a transfer or for other stages
  constexpr Seconds busy() const {
    return forward + backward_input + backward_weight + reduce + update;
  }
};

struct Simulation {
  Seconds iteration;
  std::vector<StageUse> stages;
  std::vector<SimulationEvent> events;  // each stage's in the order of its list, if asked for
};

Simulation simulate(const PipelineShape& shape, std::span<const StageTimes> stages,
                    const SimulationOptions& options = {});
// Plays these lists, which must be free of faults, instead of the shape's own.
Simulation simulate(const Schedule& schedule, const PipelineShape& shape,
                    std::span<const StageTimes> stages, const SimulationOptions& options = {});

}  // namespace braid
