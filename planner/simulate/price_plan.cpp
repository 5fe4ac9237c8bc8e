#include "planner/simulate/price_plan.h"

#include <algorithm>
#include <span>

#include "planner/simulate/stage_steps.h"

namespace braid {

StageSite site_of(const Plan& plan, int stage) {
  return {plan.mesh(), plan.shape, stage, plan.micro_batch()};
}

std::vector<StageTimes> stage_times(const Prediction& prediction) {
  std::vector<StageTimes> times;
  times.reserve(prediction.stages.size());
  for (const StagePrediction& stage : prediction.stages) times.push_back(stage.times);
  return times;
}

namespace {

int type_at(const Model& model, int layer) { return model.layers[static_cast<std::size_t>(layer)]; }

// The bytes that live at once at the worst moment of a step, by the parts that its layers' prices
// have.
Bytes walked_peak(const Plan& plan, const CostModel& cost, int stage,
                  std::span<const LayerCost> prices) {
  const StageSite site = site_of(plan, stage);
  std::vector<std::vector<LayerTensors>> chunks;
  const std::vector<Strategy>& strategies = plan.stages[static_cast<std::size_t>(stage)].strategies;
  auto price = prices.begin();
  for (const LayerRange& range : plan.stages[static_cast<std::size_t>(stage)].chunks) {
    chunks.emplace_back();
    Bytes looked_at;
    for (int layer = range.begin; layer < range.end; ++layer) {
      const LayerMemory& memory = price->memory;
      const ShortLived& moments = price->short_lived;
      const Strategy& strategy = strategies[static_cast<std::size_t>(price - prices.begin())];
      ++price;
      const int type = type_at(plan.model, layer);
      const bool is_head = plan.model.type_of(layer).shape.kind == LayerKind::head;
      LayerTensors t;
      t.states = {memory.weights, memory.optimizer, memory.constants};
      t.gradients = {memory.gradients};
      t.saved = {memory.activations};
      t.deferred = memory.deferred - moments.waits * moments.waiting;
      t.waits.assign(static_cast<std::size_t>(moments.waits), moments.waiting);
      t.tensor = strategy.outer();
      // The chunk keeps what its blocks look at once, and until their last weight gradient.
      if (looked_at == Bytes()) {
        looked_at = cost.looked_at(type, site);
        t.saved.push_back(looked_at);
        t.deferred += looked_at;
      }
      (is_head ? t.forward_work : t.backward_work) = {moments.at_work};
      t.weight_work = {moments.by_weight};
      t.gathered = moments.gathered;
      t.whole_gradient = moments.gradient;
      t.share = moments.share;
      t.replicas = strategy.replicas();
      t.gradients_stay = gradients_stay(strategy);
      if (layer > 0) t.input = cost.message(type_at(plan.model, layer - 1), site);
      t.output = cost.message(type, site);
      t.gradients_in_forward = is_head;
      chunks.back().push_back(std::move(t));
    }
  }
  return peak_of_step(plan.shape, stage, std::move(chunks));
}

std::vector<Strategy> strategies_by_layer(const Plan& plan) {
  std::vector<Strategy> all(static_cast<std::size_t>(plan.model.num_layers()));
  for (const StagePlan& stage : plan.stages) {
    auto next = stage.strategies.begin();
    for (const int layer : layers_of(stage)) all[static_cast<std::size_t>(layer)] = *next++;
  }
  return all;
}

// `strategies`: of every layer of the model. What comes from another stage lies as the layer there
// had it, so that a chunk's first layer may have to redistribute as well.
StagePrediction price_stage(const Plan& plan, const CostModel& cost, int stage,
                            std::span<const Strategy> strategies) {
  const StageSite site = site_of(plan, stage);
  const StagePlan& layers = plan.stages[static_cast<std::size_t>(stage)];
  const std::vector<int> ids = layers_of(layers);
  StagePrediction p;
  Bytes resident;
  std::vector<LayerCost> prices;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Strategy& strategy = layers.strategies[i];
    const int type = type_at(plan.model, ids[i]);
    const LayerCost& priced = prices.emplace_back(cost.layer(type, strategy, site));
    p.terms += priced.time;
    p.memory += priced.memory;
    resident += cost.resident(priced.memory, site);
    if (ids[i] > 0) {
      const int before = ids[i] - 1;
      p.redistribute +=
          2 * cost.redistribute(type_at(plan.model, before),
                                layout_of(strategies[static_cast<std::size_t>(before)]),
                                layout_of(strategy), site);
    }
  }
  p.times.forward = Seconds(p.terms.forward() + p.redistribute / 2);
  p.times.backward_input = Seconds(p.terms.backward_input() + p.redistribute / 2);
  p.times.backward_weight = Seconds(p.terms.backward_weight());
  p.times.reduce = Seconds(p.terms.once_reduce());
  p.times.update = Seconds(p.terms.once_update());
  if (!site.last()) p.times.transfer = cost.transfer(type_at(plan.model, ids.back()), site);
  p.in_flight = in_flight(plan.shape, stage);
  p.memory.deferred = weights_waiting(plan.shape, stage) * p.memory.deferred;
  p.overhead = cost.stage_overhead(site);
  p.messages = cost.messages(site);
  const Bytes in_use = p.memory.states() + scaled(p.memory.activations, p.in_flight) +
                       p.memory.deferred - p.memory.in_turn + p.memory.constants +
                       p.memory.workspace;
  // Layers round up one by one: what that adds is counted as slack.
  p.slack = resident + cost.reserved_workspace(p.memory) - in_use;
  p.peak = resident + cost.reserved_workspace(p.memory) + p.messages + p.overhead;
  // Its parts do not all have their worst moment together.
  if (cost.knows_moments()) {
    const Bytes never = in_use + p.messages - walked_peak(plan, cost, stage, prices);
    p.memory.in_turn += std::max(never, Bytes());
    p.memory.workspace += std::max(Bytes() - never, Bytes());
    p.peak -= never;
  }
  p.budget = cost.budget(plan.memory_limit, site);
  return p;
}

}  // namespace

Prediction price_plan(const Plan& plan, const CostModel& cost) {
  Prediction prediction;
  const std::vector<Strategy> strategies = strategies_by_layer(plan);
  for (int stage = 0; stage < plan.shape.stages; ++stage)
    prediction.stages.push_back(price_stage(plan, cost, stage, strategies));
  const std::vector<StageTimes> times = stage_times(prediction);
  const auto own = cost.own_iteration(plan.shape, times);
  prediction.iteration = own ? *own : simulate(plan.shape, times).iteration;
  prediction.samples_per_second =
      static_cast<double>(plan.global_batch) / prediction.iteration.value();
  return prediction;
}

}  // namespace braid
