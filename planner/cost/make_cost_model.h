#pragma once
// One place that knows which model of cost answers to which name.

#include <memory>

#include "planner/cost/cost_kind.h"
#include "planner/cost/cost_model.h"
#include "planner/profile/profile.h"

namespace braid {

struct CostSettings {
  CostKind kind = CostKind::roofline;
  Precision precision = Precision::bf16;
  Precision gradient_precision = Precision::fp32;
  std::int64_t global_batch = 1;
};

// Everything passed by reference must outlive the result. `profile` is needed by `measured` and
// `galvatron`: Error without it.
std::unique_ptr<CostModel> make_cost_model(const CostSettings& settings, const Model& model,
                                           const Cluster& cluster, const Profile* profile);

}  // namespace braid
