#pragma once
// A plan with the roofline's prediction.

#include "planner/cost/make_cost_model.h"
#include "planner/simulate/price_plan.h"

namespace braid {

inline Plan priced(Plan plan) {
  const auto cost = make_cost_model({.precision = plan.precision,
                                     .gradient_precision = plan.gradient_precision,
                                     .global_batch = plan.global_batch},
                                    plan.model, plan.cluster, nullptr);
  plan.prediction = price_plan(plan, *cost);
  return plan;
}

}  // namespace braid
