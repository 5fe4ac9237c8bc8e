#pragma once
// The messages of one stage of a plan, from what its prediction says of them.

#include <vector>

#include "planner/plan/plan.h"
#include "planner/simulate/event_simulator.h"

namespace braid {

// Seconds are the plan's: what communication leaves exposed and what compute hides add up to what
// it takes alone, and its layers have parts of that by their bytes. What becomes a message leaves
// `times`.
StageStreams take_apart(const Plan& plan, int stage, StageTimes& times);

template <class Visit>
void for_each_message(const std::vector<StageStreams>& streams, Visit visit) {
  for (const StageStreams& s : streams) {
    if (s.transfer) visit(*s.transfer);
    for (const auto* list : {&s.forward_gathers, &s.backward_gathers, &s.scatters, &s.reductions})
      for (const PassCollective& c : *list) visit(c.message);
    for (const Message& m : s.regathers) visit(m);
  }
}

}  // namespace braid
