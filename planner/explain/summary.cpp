#include "planner/explain/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/core/text.h"
#include "planner/explain/layout.h"
#include "planner/simulate/price_plan.h"
#include "planner/simulate/simulator.h"

namespace braid {
namespace {

const StagePlan& stage_at(const Plan& plan, int stage) {
  return plan.stages[static_cast<std::size_t>(stage)];
}

// Rounding of a sum over some ten thousand operations stays far below this.
constexpr double kNothing = 1e-9;

constexpr const char* kBubble = "bubble";

// Galvatron's formulas may find an iteration with reduction shorter than one without: it then costs
// nothing, and gives nothing back.
double reduction(const LayerTime& terms) { return std::max(terms.reduce, 0.0); }

double busy(const StagePrediction& stage, double micro_batches) {
  return micro_batches * (stage.terms.micro_batch() + stage.redistribute) + reduction(stage.terms) +
         stage.terms.regather + stage.terms.update;
}

int busiest_stage(const Plan& plan) {
  const auto& stages = plan.prediction.stages;
  const double m = plan.shape.micro_batches;
  const auto slowest = std::ranges::max_element(
      stages, {}, [&](const StagePrediction& stage) { return busy(stage, m); });
  return static_cast<int>(slowest - stages.begin());
}

// What transfers alone add: the same pipeline played without them.
Seconds transfer_stall(const Plan& plan) {
  if (plan.shape.stages == 1) return Seconds(0);
  std::vector<StageTimes> times = stage_times(plan.prediction);
  const Seconds with = simulate(plan.shape, times).iteration;
  for (StageTimes& stage : times) stage.transfer = Seconds(0);
  return with - simulate(plan.shape, times).iteration;
}

bool split_alike(const LayerRun& a, const LayerRun& b) {
  return a.type == b.type && a.strategy == b.strategy && a.size() == b.size();
}

}  // namespace

std::vector<LayerRun> layer_runs(const Plan& plan, int stage) {
  const StagePlan& part = stage_at(plan, stage);
  const std::vector<int> layers = layers_of(part);
  std::vector<LayerRun> runs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const int layer = layers[i];
    const int type = plan.model.layers[static_cast<std::size_t>(layer)];
    const Strategy& strategy = part.strategies[i];
    const bool continues = !runs.empty() && runs.back().last + 1 == layer &&
                           runs.back().type == type && runs.back().strategy == strategy;
    if (continues) {
      runs.back().last = layer;
    } else {
      runs.push_back({layer, layer, type, strategy});
    }
  }
  return runs;
}

std::vector<StageGroup> equal_stages(const Plan& plan) {
  std::vector<StageGroup> groups;
  std::vector<LayerRun> previous;
  for (int stage = 0; stage < plan.shape.stages; ++stage) {
    std::vector<LayerRun> runs = layer_runs(plan, stage);
    if (!groups.empty() && std::ranges::equal(runs, previous, split_alike)) {
      groups.back().last = stage;
    } else {
      groups.push_back({stage, stage});
    }
    previous = std::move(runs);
  }
  return groups;
}

TimeBreakdown time_breakdown(const Plan& plan) {
  TimeBreakdown breakdown;
  breakdown.stage = busiest_stage(plan);
  const StagePrediction& stage = plan.prediction.stages[static_cast<std::size_t>(breakdown.stage)];
  const LayerTime& t = stage.terms;
  const double m = plan.shape.micro_batches;
  const double iteration = plan.prediction.iteration.value();

  const auto add = [&](std::string name, double seconds) {
    if (std::abs(seconds) > kNothing * iteration)
      breakdown.shares.push_back({std::move(name), Seconds(seconds)});
  };
  add("compute", m * (t.forward_compute + t.backward_input_compute + t.backward_weight_compute));
  add("recompute", m * t.recompute);
  add("tensor parallel", m * (t.forward_tensor + t.backward_tensor));
  add("context parallel", m * (t.forward_context + t.backward_context));
  add("expert parallel", m * (t.forward_expert + t.backward_expert));
  add("ZeRO gathers", m * (t.forward_gather + t.backward_gather) + t.regather);
  add("gradient reduce", reduction(t));
  add("update", t.update);
  add("redistribute", m * stage.redistribute);
  const double idle = iteration - busy(stage, m);
  const double transfers = std::clamp(transfer_stall(plan).value(), 0.0, std::max(idle, 0.0));
  add("transfers", transfers);
  // A cost model with a formula of its own may count less than its stages do (Galvatron's leaves
  // the middle stages out); saying so beats a bar that does not add up.
  add(idle < 0 ? "left out by the cost model" : kBubble, idle - transfers);
  return breakdown;
}

double bubble_fraction(const TimeBreakdown& breakdown, Seconds iteration) {
  const auto bubble = std::ranges::find(breakdown.shares, kBubble, &TimeShare::name);
  return bubble == breakdown.shares.end() ? 0 : bubble->time / iteration;
}

MemoryParts held_parts(const StagePrediction& stage) {
  const LayerMemory& memory = stage.memory;
  return {memory.weights,
          memory.gradients,
          memory.optimizer,
          scaled(memory.activations, stage.in_flight),
          memory.constants + memory.deferred + stage.messages + memory.workspace,
          stage.slack,
          stage.overhead};
}

// What is never there together is left out of the activations, as far as they go, then of the
// gradients that are made when those are freed, and of what is short-lived.
MemoryParts memory_parts(const StagePrediction& stage) {
  MemoryParts parts = held_parts(stage);
  Bytes left = stage.memory.in_turn;
  for (Bytes* part : {&parts.activations, &parts.gradients, &parts.workspace}) {
    const Bytes out = std::min(*part, left);
    *part -= out;
    left -= out;
  }
  return parts;
}

int fullest_stage(const Prediction& prediction) {
  const auto fullest = std::ranges::max_element(
      prediction.stages, {},
      [](const StagePrediction& stage) { return stage.peak / stage.budget; });
  return static_cast<int>(fullest - prediction.stages.begin());
}

std::optional<int> first_overflow(const Prediction& prediction) {
  const auto found = std::ranges::find_if(
      prediction.stages, [](const StagePrediction& stage) { return stage.peak > stage.budget; });
  if (found == prediction.stages.end()) return std::nullopt;
  return static_cast<int>(found - prediction.stages.begin());
}

FlopsPerSecond cluster_peak(const Cluster& cluster, Precision precision) {
  FlopsPerSecond peak;
  for (const NodeGroup& group : cluster.groups) {
    const auto& device = cluster.device_types[static_cast<std::size_t>(group.device_type)];
    peak += device.peak(precision) * (1.0 * group.count * group.devices);
  }
  return peak;
}

bool knows_shapes(const Model& model) {
  return std::ranges::all_of(model.types, [](const LayerType& type) {
    return type.shape.kind != LayerKind::block || type.shape.heads > 0;  // imported ones have none
  });
}

std::optional<double> excess(Seconds iteration, Seconds bound) {
  if (!(bound > Seconds(0))) return std::nullopt;
  return iteration / bound - 1;
}

std::string strategy_line(const Plan& plan) {
  std::map<Strategy, int> counts;
  for (int stage = 0; stage < plan.shape.stages; ++stage)
    for (const LayerRun& run : layer_runs(plan, stage))
      if (plan.model.types[static_cast<std::size_t>(run.type)].shape.kind == LayerKind::block)
        counts[run.strategy] += run.size();
  const auto most =
      std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  if (most == counts.end()) return "no blocks";
  std::string line = to_string(most->first);
  if (counts.size() > 1) line += fmt::format(" and {} more", counts.size() - 1);
  return line;
}

std::string shape_line(const Plan& plan) {
  const PipelineShape& shape = plan.shape;
  std::string line;
  if (shape.stages > 1) {
    line = fmt::format("{} stages · {} · ", shape.stages, name_of(shape.schedule));
    if (shape.chunks > 1) line += fmt::format("{} chunks · ", shape.chunks);
  }
  return line + fmt::format("{} × {} sample{} · {}", shape.micro_batches, plan.micro_batch(),
                            plan.micro_batch() == 1 ? "" : "s", strategy_line(plan));
}

std::optional<Infeasible> misfit(const Plan& plan) {
  if (!first_overflow(plan.prediction)) return std::nullopt;
  Infeasible result;
  result.constraint = "memory";
  result.stage = fullest_stage(plan.prediction);
  result.breakdown = plan.prediction.stages[static_cast<std::size_t>(result.stage)];
  result.needed = result.breakdown.peak;
  result.available = result.breakdown.budget;
  result.closest = plan;
  return result;
}

}  // namespace braid
