#pragma once
// One layer's site under one strategy, for tests of what stands below models.

#include "runtime/parallel/site.h"
#include "tests/support/random_plan.h"

namespace braid::parallel {

// One stage in which every layer has the same strategy; not verified.
inline Plan uniform_plan(const Model& model, const Strategy& strategy, MeshOrder order) {
  Plan plan = reference_plan(model, strategy.dp);
  plan.cluster = tiny_cluster(strategy.devices());
  plan.mesh_order = order;
  for (Strategy& s : plan.stages[0].strategies) s = strategy;
  return plan;
}

// Of the first block. Collective over the world, which has the strategy's devices.
inline Site block_site(const Model& model, const Strategy& strategy, Groups& groups,
                       MeshOrder order = MeshOrder::pp_dp_cp_tp) {
  const Plan plan = uniform_plan(model, strategy, order);
  const bool causal = model.type_of(1).shape.attention == AttentionKind::causal;
  return make_site(plan, 1, strategy, groups.world().rank(), causal, fp64_numerics(at::kCPU),
                   groups);
}

}  // namespace braid::parallel
