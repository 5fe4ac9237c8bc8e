#pragma once
// Times the runtime's own layers, one of each type, as a plan would run them: every split that the
// search can ask for, without communication, on all ranks at once.

#include "planner/model/model.h"
#include "planner/profile/profile.h"
#include "planner/search/questions.h"
#include "runtime/measure/bench.h"

namespace braid::measure {

struct ModelOptions {
  Precision precision = Precision::bf16;
  Precision gradient_precision = Precision::fp32;
  std::int64_t global_batch = 1;
  Bytes memory;  // of one device; zero: all that the profile's cluster says it has
  SpaceOptions space;
};

// How much measuring only what can be asked for saves, in layers timed.
struct ModelCost {
  int possible = 0, reachable = 0, measured = 0;
};

// Adds layers, updates and the model itself to a profile that has its cluster. Never holds more
// than a few blocks. Throws Error where the runtime has not all operators of the model. Collective.
ModelCost measure_model(Bench& bench, Profile& profile, const Model& model,
                        const ModelOptions& options);

}  // namespace braid::measure
