#pragma once
// The prediction of a whole plan: every layer priced, every stage summed, the schedule played.

#include "planner/cost/cost_model.h"
#include "planner/plan/plan.h"
#include "planner/simulate/simulator.h"

namespace braid {

Prediction price_plan(const Plan& plan, const CostModel& cost);
StageSite site_of(const Plan& plan, int stage);
// The times that the simulator plays.
std::vector<StageTimes> stage_times(const Prediction& prediction);

}  // namespace braid
