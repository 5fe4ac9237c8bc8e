#include "tests/referee/referee.h"

#include <algorithm>

#include "tests/referee/redistribution.h"

namespace braid::referee {

namespace {

Setting setting_of(const Plan& plan, const Wires& wires, const Simplifications& simple) {
  const int last = plan.model.num_layers() - 1;
  return {.wires = wires,
          .simple = simple,
          .order = plan.mesh_order,
          .stages = plan.shape.stages,
          .micro_batches = plan.shape.micro_batches,
          .micro_batch = static_cast<double>(plan.global_batch / plan.shape.micro_batches),
          .defers = plan.shape.schedule == ScheduleKind::zero_bubble && plan.shape.stages > 1,
          .precision = plan.precision,
          .gradients = plan.gradient_precision,
          .tied = plan.model.type_of(last).shape.tied};
}

std::vector<Strategy> strategies_by_layer(const Model& model,
                                          const std::vector<StagePlan>& stages) {
  std::vector<Strategy> all(model.layers.size());
  for (const StagePlan& stage : stages) {
    auto next = stage.strategies.begin();
    for (const LayerRange& range : stage.chunks)
      for (int l = range.begin; l < range.end; ++l) all[static_cast<std::size_t>(l)] = *next++;
  }
  return all;
}

// A layout of samples and tokens alone.
Strategy layout(const Strategy& s) { return {.tp = s.tp, .cp = s.cp, .dp = s.dp}; }

}  // namespace

Referee::Referee(const Plan& plan, const Simplifications& simple)
    : plan_(plan), wires_(plan_.cluster), setting_(setting_of(plan_, wires_, simple)) {}

const LayerSeconds& Referee::layer(int layer, const Strategy& strategy, int stage) {
  const int type = plan_.model.layers[static_cast<std::size_t>(layer)];
  const auto key = std::tuple(type, strategy, stage);
  auto found = layers_.find(key);
  if (found == layers_.end())
    found =
        layers_
            .emplace(key, price_layer(plan_.model.type_of(layer).shape, strategy, stage, setting_))
            .first;
  return found->second;
}

// The activation of one micro-batch that a layer hands on, over all devices.
double Referee::boundary_bytes(int layer) const {
  const LayerShape& shape = plan_.model.type_of(layer).shape;
  return setting_.micro_batch * static_cast<double>(shape.tokens * shape.hidden) *
         static_cast<double>(bytes_of(setting_.precision));
}

double Referee::entry(int layer, const Strategy& from, const Strategy& to, int stage) {
  const auto key = std::tuple(plan_.model.layers[static_cast<std::size_t>(layer - 1)], layout(from),
                              layout(to), stage);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  const auto at = [&](const Strategy& s) {
    return devices_of_stage(wires_.num_devices(), setting_.stages, setting_.order, stage, s);
  };
  const bool causal = std::ranges::any_of(plan_.model.types, [](const LayerType& type) {
    return type.shape.attention == AttentionKind::causal;
  });
  const LayoutChange change{.before = at(from),
                            .after = at(to),
                            .from = from,
                            .to = to,
                            .order = setting_.order,
                            .zigzag = causal,
                            .bytes = boundary_bytes(layer - 1)};
  return entries_[key] = redistribute(wires_, change, setting_.simple);
}

std::vector<int> Referee::devices(int stage) const {
  const Strategy any{.dp = wires_.num_devices() / setting_.stages};
  std::vector<int> ids;
  for (const Coordinates& c :
       devices_of_stage(wires_.num_devices(), setting_.stages, setting_.order, stage, any))
    ids.push_back(c.device);
  return ids;
}

double Referee::transfer(int layer, int from, int to) {
  const auto key = std::tuple(plan_.model.layers[static_cast<std::size_t>(layer)], from, to);
  const auto found = transfers_.find(key);
  if (found != transfers_.end()) return found->second;
  const std::vector<int> senders = devices(from), receivers = devices(to);
  const double bytes = boundary_bytes(layer) / static_cast<double>(senders.size());
  return transfers_[key] = Collectives(wires_).transfer(senders, receivers, bytes);
}

// Compute of the blocks behind the head in a backward pass that their own gradients do not use, by
// type of device.
std::vector<double> Referee::spare_behind_head(const StagePlan& plan, int stage) {
  std::vector<double> spare;
  if (setting_.simple.blocks_like_head) {
    // The first type of block stands for all, its experts reduced as far as everything else.
    const LayerShape& block =
        std::ranges::find(plan_.model.types, LayerKind::block, [](const LayerType& type) {
          return type.shape.kind;
        })->shape;
    const Strategy& split = plan.strategies.back();
    const auto [known, is_new] = spare_.try_emplace({split, stage});
    if (!is_new) return known->second;
    const DeviceParameters held = parameters_of(block, split, setting_);
    const std::vector<Coordinates> seats =
        devices_of_stage(wires_.num_devices(), setting_.stages, setting_.order, stage, split);
    const double own = Collectives(wires_).all_reduce(
        groups_of(seats, split).replicas,
        (held.dense + held.experts) * static_cast<double>(bytes_of(setting_.gradients)));
    const double blocks = static_cast<double>(plan_.model.layers.size() - 2) / setting_.stages;
    for (const DeviceType* type : types_of(seats, setting_)) {
      const ComputeSeconds c = compute_on(*type, block, split, setting_);
      spare.push_back(blocks * std::max(0.0, c.backward_input + c.backward_weight - own));
    }
    return known->second = spare;
  }
  auto strategy = plan.strategies.begin();
  for (const LayerRange& range : plan.chunks)
    for (int l = range.begin; l < range.end; ++l, ++strategy) {
      if (plan_.model.type_of(l).shape.kind != LayerKind::block) continue;
      const LayerSeconds& block = layer(l, *strategy, stage);
      spare.resize(block.backward.size());
      for (std::size_t i = 0; i < spare.size(); ++i)
        spare[i] += std::max(0.0, block.backward[i].compute - block.gradients);
    }
  return spare;
}

StageSeconds Referee::stage(const StagePlan& plan, const std::vector<Strategy>& strategies,
                            int stage) {
  const auto of = [&](int l) { return strategies[static_cast<std::size_t>(l)]; };
  StageSeconds result;
  ChunkSeconds sum;
  for (const LayerRange& range : plan.chunks) {
    ChunkSeconds& chunk = result.chunks.emplace_back();
    for (int l = range.begin; l < range.end; ++l) {
      const LayerSeconds& t = layer(l, of(l), stage);
      const double enter = l > 0 ? entry(l, of(l - 1), of(l), stage) : 0;
      chunk.forward += t.forward + enter;
      chunk.backward_input += t.backward_input + enter;
      chunk.backward_weight += t.backward_weight;
      result.update += t.update;
      const bool head = plan_.model.type_of(l).shape.kind == LayerKind::head;
      result.reduce +=
          reduce_seconds(t, head ? spare_behind_head(plan, stage) : std::vector<double>{});
    }
    sum.forward += chunk.forward;
    sum.backward_input += chunk.backward_input;
    sum.backward_weight += chunk.backward_weight;
  }
  if (setting_.simple.even_chunks) {
    const double v = static_cast<double>(plan.chunks.size());
    for (ChunkSeconds& chunk : result.chunks)
      chunk = {sum.forward / v, sum.backward_input / v, sum.backward_weight / v};
  }
  return result;
}

Seconds Referee::iteration(const std::vector<StagePlan>& stages) {
  const std::vector<Strategy> strategies = strategies_by_layer(plan_.model, stages);
  std::vector<StageSeconds> times;
  double farthest = 0;
  const int p = setting_.stages;
  for (int s = 0; s < p; ++s) {
    const StagePlan& plan = stages[static_cast<std::size_t>(s)];
    StageSeconds& t = times.emplace_back(stage(plan, strategies, s));
    if (p == 1) continue;
    const int last_layer = plan.chunks.front().end - 1;
    t.to_next = transfer(last_layer, s, (s + 1) % p);
    if (s + 1 < p) farthest = std::max(farthest, t.to_next);
  }
  if (setting_.simple.farthest_wrap) times.back().to_next = farthest;
  return Seconds(play(plan_.shape, times));
}

Seconds price(const Plan& plan, const Simplifications& simple) {
  return Referee(plan, simple).iteration(plan.stages);
}

}  // namespace braid::referee
