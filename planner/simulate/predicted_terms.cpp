#include "planner/simulate/predicted_terms.h"

#include <algorithm>

#include "planner/core/error.h"
#include "planner/simulate/price_plan.h"

namespace braid {

namespace {

// What the stage's layers take, without its neighbours.
StepTerms own_terms(const StagePrediction& stage, int micro_batches) {
  const LayerTime& t = stage.terms;
  const auto each = [&](double seconds) { return Seconds(seconds * micro_batches); };
  StepTerms terms;
  terms.compute =
      each(t.forward_compute + t.backward_input_compute + t.backward_weight_compute + t.recompute);
  terms.tensor = {each(t.forward_tensor + t.backward_tensor), each(t.hidden_tensor)};
  terms.context = {each(t.forward_context + t.backward_context), each(t.hidden_context)};
  terms.expert.exposed = each(t.forward_expert + t.backward_expert);
  terms.gather = {each(t.forward_gather + t.backward_gather) + Seconds(t.regather),
                  each(t.hidden_gather)};
  terms.reduce = {Seconds(t.reduce), Seconds(t.hidden_reduce)};
  terms.redistribute.exposed = each(stage.redistribute);
  terms.update = Seconds(t.update);
  return terms;
}

// How long a message to this stage is under way.
Seconds transfer_to(const Plan& plan, int stage, const Op& op) {
  const int towards = op.kind == OpKind::receive_activation ? -1 : +1;
  const int from = virtual_stage(plan.shape, stage, op.chunk) + towards;
  const int sender = from % plan.shape.stages;
  const auto link = [&](int boundary) {
    return plan.prediction.stages[static_cast<std::size_t>(boundary)].times.transfer;
  };
  if (sender == stage + towards) return link(std::min(stage, sender));
  Seconds slowest;  // first and last stage: as far as the farthest
  for (int boundary = 0; boundary + 1 < plan.shape.stages; ++boundary)
    slowest = std::max(slowest, link(boundary));
  return slowest;
}

}  // namespace

std::vector<StepTerms> predicted_terms(const Plan& plan) {
  internal_check(std::ssize(plan.prediction.stages) == plan.shape.stages,
                 "terms of a plan that is priced");
  const Simulation simulation =
      simulate(plan.shape, stage_times(plan.prediction), {.events = true});
  std::vector<StepTerms> all;
  for (std::size_t stage = 0; stage < plan.prediction.stages.size(); ++stage) {
    all.push_back(own_terms(plan.prediction.stages[stage], plan.shape.micro_batches));
    all.back().bubble = simulation.stages[stage].bubble;
  }
  for (const SimulationEvent& event : simulation.events) {
    if (event.op.kind != OpKind::receive_activation && event.op.kind != OpKind::receive_gradient)
      continue;
    StepTerms& terms = all[static_cast<std::size_t>(event.stage)];
    const Seconds transfer = transfer_to(plan, event.stage, event.op);
    const Seconds exposed = std::min(event.end - event.start, transfer);
    terms.transfer += {exposed, transfer - exposed};
    terms.bubble -= exposed;
  }
  return all;
}

StepTerms predicted_terms(const Plan& plan, int stage) {
  return predicted_terms(plan)[static_cast<std::size_t>(stage)];
}

}  // namespace braid
