// The seconds of one layer: compute, the collectives of its passes, and ZeRO's.

#include <algorithm>

#include "planner/cost/assumptions.h"
#include "tests/referee/layer_communication.h"

namespace braid::referee {

namespace {

// Collectives of parameters and gradients over the replicas, experts over their own.
struct StateCollectives {
  double gather = 0;      // parameters; as long as the scatter of as many bytes
  double scatter = 0;     // gradients
  double all_reduce = 0;  // gradients
};

StateCollectives state_collectives(const LayerOnStage& l, const DeviceParameters& p) {
  const auto over_replicas = [&](double bytes_each) {
    return l.collectives.all_gather(l.groups.replicas, p.dense * bytes_each) +
           l.collectives.all_gather(l.groups.expert_replicas, p.experts * bytes_each);
  };
  const double gradient = static_cast<double>(bytes_of(l.setting.gradients));
  return {.gather = over_replicas(l.element()),
          .scatter = over_replicas(gradient),
          .all_reduce = 2 * over_replicas(gradient)};
}

struct Shards {
  double dense = 1, experts = 1;
};

Shards shards_of(const Strategy& s, const StageGroups& groups) {
  if (s.zero == Zero::none) return {};
  return {static_cast<double>(groups.replicas.front().size()),
          static_cast<double>(groups.expert_replicas.front().size())};
}

LayerSeconds on_device(const LayerOnStage& l, const DeviceType& device) {
  const Strategy& s = l.strategy;
  const Setting& setting = l.setting;
  const Assumptions a;
  const double memory_rate = device.memory_bandwidth.value() * a.memory_efficiency;
  const ComputeSeconds c = compute_on(device, l.shape, s, setting);
  const DeviceParameters p = parameters_of(l.shape, s, setting);
  const StateCollectives states = state_collectives(l, p);
  const Shards shards = shards_of(s, l.groups);
  const bool head = l.shape.kind == LayerKind::head;
  const bool shards_weights = s.zero == Zero::parameters;
  const bool shards_gradients = s.zero == Zero::gradients || shards_weights;
  const bool once = setting.micro_batches == 1;

  LayerSeconds t;
  t.forward = c.forward;
  t.backward_input = c.backward_input + c.recompute;
  t.backward_weight = c.backward_weight;
  for (const PassSeconds& pass :
       {tensor_collectives(l, c), context_collectives(l, c), expert_collectives(l)}) {
    t.forward += pass.forward;
    t.backward_input += pass.backward;
  }

  // ZeRO-3 gathers parameters in every pass; ZeRO-2 and 3 scatter gradients in every backward of
  // several. A head has gradients in forward, and scatters them once more.
  double every = shards_weights ? states.gather : 0;
  if (shards_gradients) every += ((once ? 0 : 1) + (head ? 1 : 0)) * states.scatter;
  const double gathered = exposed(c.all_backward(), every);
  if (shards_weights) t.forward += exposed(c.forward, states.gather);
  t.backward_input += gathered;
  // A rank adds its share of a scattered gradient to what it has: two reads and a write. Gradients
  // without replicas are not scattered.
  if (shards_gradients) {
    double elements = p.dense / shards.dense;
    if (shards.experts > 1) elements += p.experts / shards.experts;
    t.backward_weight +=
        3 * elements * static_cast<double>(bytes_of(setting.gradients)) / memory_rate;
  }

  t.gradients = every;
  if (s.zero == Zero::none) t.gradients += states.all_reduce;
  if (s.zero == Zero::optimizer || (shards_gradients && once)) t.gradients += states.scatter;
  t.backward = {{c.all_backward(), gathered}};

  const double elements = p.dense / shards.dense + p.experts / shards.experts;
  t.update = elements * a.optimizer_traffic / memory_rate;
  if (s.zero == Zero::optimizer || s.zero == Zero::gradients) t.update += states.gather;
  // The head's copy of the table is made from unsharded weights, and its gradient added to an
  // unsharded one.
  const bool copied = setting.tied && setting.wires.num_devices() > 1;
  if (l.shape.kind == LayerKind::embedding && copied) {
    if (shards_weights) t.update += states.gather;
    if (shards_gradients) t.exposed_gradients += states.scatter;
  }
  return t;
}

// The head's copy of a tied table sends its gradient to the first stage and gets the updated rows.
void add_tied_transfers(const LayerOnStage& l, int stage, LayerSeconds& t) {
  const double copied = parameters_of(l.shape, l.strategy, l.setting).copied;
  if (copied == 0 || l.setting.stages == 1) return;
  const auto ids = [&](int of) {
    Group group;
    for (const Coordinates& c : devices_of_stage(l.setting.wires.num_devices(), l.setting.stages,
                                                 l.setting.order, of, l.strategy))
      group.push_back(c.device);
    return group;
  };
  const auto sent = [&](double bytes) {
    return l.collectives.transfer(ids(stage), ids(0), copied * bytes);
  };
  t.exposed_gradients += sent(static_cast<double>(bytes_of(l.setting.gradients)));
  t.update += sent(l.element());
}

}  // namespace

LayerSeconds price_layer(const LayerShape& shape, const Strategy& s, int stage,
                         const Setting& setting) {
  const std::vector<Coordinates> devices =
      devices_of_stage(setting.wires.num_devices(), setting.stages, setting.order, stage, s);
  const StageGroups groups = groups_of(devices, s);
  const Collectives collectives(setting.wires);
  const LayerOnStage layer{shape, s, setting, groups, collectives};
  LayerSeconds slowest;
  for (const DeviceType* type : types_of(devices, setting)) {
    const LayerSeconds t = on_device(layer, *type);
    slowest.forward = std::max(slowest.forward, t.forward);
    slowest.backward_input = std::max(slowest.backward_input, t.backward_input);
    slowest.backward_weight = std::max(slowest.backward_weight, t.backward_weight);
    slowest.update = std::max(slowest.update, t.update);
    slowest.gradients = t.gradients;
    slowest.exposed_gradients = t.exposed_gradients;
    slowest.backward.push_back(t.backward.front());
  }
  add_tied_transfers(layer, stage, slowest);
  return slowest;
}

}  // namespace braid::referee
