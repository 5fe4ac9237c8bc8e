#include "planner/cost/galvatron_model.h"

#include <algorithm>
#include <cmath>

namespace braid {

namespace {

constexpr double kMegabyte = 1048576.0;

Bytes from_megabytes(double megabytes) {
  return Bytes(static_cast<std::int64_t>(std::ceil(megabytes * kMegabyte)));
}

}  // namespace

GalvatronModel::GalvatronModel(const Profile& profile, const Model& model, const Cluster& cluster,
                               std::int64_t global_batch)
    : model_(model),
      cluster_(cluster),
      global_batch_(global_batch),
      cost_(profile, model, cluster.num_devices()) {
  int blocks = 0;
  for (const LayerType& type : model.types)
    block_index_.push_back(type.shape.kind == LayerKind::block ? blocks++ : -1);
}

GalvatronTask GalvatronModel::task(const StageSite& site) const {
  return {global_batch_, site.shape.micro_batches, site.shape.stages};
}

bool GalvatronModel::prices(const Strategy& s) const {
  // ZeRO-2 and ZeRO-3 are what it searches; one replica along the data axis is never sharded.
  const bool states =
      s.dp == 1 ? s.zero == Zero::none : s.zero == Zero::gradients || s.zero == Zero::parameters;
  return s.tp_kind != TensorKind::spatial_temporal && s.cp == 1 && s.ep == 1 && s.tp <= 8 &&
         s.recompute != Recompute::selective && states;
}

LayerCost GalvatronModel::layer(int type, const Strategy& s, const StageSite& site) const {
  const GalvatronTask where = task(site);
  const int block = block_index_[static_cast<std::size_t>(type)];
  LayerCost cost;
  GalvatronPrice price;
  double megabytes = 0;
  if (block >= 0) {
    price = cost_.layer(block, s, where);
    megabytes = cost_.layer_memory(block, s, where, site.stage);
    if (s.tensor_split() > 1) cost.memory.workspace = sequence_buffer(s.tp, site);
  } else {
    // With one stage the embedding carries what was measured of both.
    const bool head = model_.types[static_cast<std::size_t>(type)].shape.kind == LayerKind::head;
    if (head && site.shape.stages == 1) return cost;
    price = cost_.outside(s, where, site.stage);
    // Neither the embedding's gradient reduction nor, beside a reduction, its compute is in the
    // original's iteration time. Behind several stages that hides anyway.
    price.sync = site.shape.stages == 1 ? 0.0 : price.no_sync;
    megabytes = cost_.outside_memory(s, where, site.stage) - cost_.outside_overhead();
  }
  cost.time.forward_compute = price.forward * 1e-3;
  cost.time.backward_input_compute = (price.no_sync - price.forward) * 1e-3;
  cost.time.reduce = (price.sync - price.no_sync) * 1e-3;
  cost.memory.weights = from_megabytes(megabytes);
  return cost;
}

double GalvatronModel::recurrence_change(int, const ActivationLayout& from,
                                         const ActivationLayout& to, const StageSite& site) const {
  return cost_.change(from.tp, to.tp, task(site)) * 1e-3;
}

Bytes GalvatronModel::sequence_buffer(int widest, const StageSite& site) const {
  return from_megabytes(cost_.sequence_buffer(task(site), widest));
}

Bytes GalvatronModel::resident(const LayerMemory& memory, const StageSite&) const {
  return memory.weights;  // in-flight activations are inside, rounded with the rest
}

Bytes GalvatronModel::stage_overhead(const StageSite&) const {
  return from_megabytes(GalvatronCost::outside_overhead());
}

Bytes GalvatronModel::budget(Bytes limit, const StageSite&) const {
  const Bytes all = cluster_.device_types.front().memory;
  return from_megabytes(GalvatronCost::budget(limit == Bytes() ? all : limit));
}

// Its iteration is the largest of several paths. One stage: all micro-batches without reduction, or
// the last one with it. Several: all stages once and the last stage's micro-batches, or all stages
// and the first one's; stage 0 ends with its reduction.
StageWeights GalvatronModel::weights(const PipelineShape& shape, int stage) const {
  const double m = shape.micro_batches;
  if (shape.stages == 1) return {.ramp = {m, m, m, 0.0, 0.0}, .load = {m, m, m, 1.0, 0.0}};
  const double first = stage == 0 ? 1.0 : 0.0;
  double times = 1.0;
  if (stage + 1 == shape.stages) times = m;
  if (stage == 0) times = std::max(times, m + 1 - shape.stages);
  return {.ramp = {1.0, 1.0, 1.0, first, 0.0}, .load = {times, times, times, first, 0.0}};
}

std::vector<int> GalvatronModel::given_cuts(int blocks, int stages) const {
  return galvatron_cuts(blocks, stages);
}

std::optional<Seconds> GalvatronModel::own_iteration(const PipelineShape& shape,
                                                     std::span<const StageTimes> stages) const {
  std::vector<double> no_sync;
  std::vector<double> sync;
  for (const StageTimes& stage : stages) {
    const double c = (stage.forward + stage.backward_input + stage.backward_weight).value();
    no_sync.push_back(c * 1e3);
    sync.push_back((c + stage.reduce.value()) * 1e3);
  }
  return Seconds(GalvatronCost::iteration(no_sync, sync, shape.micro_batches));
}

}  // namespace braid
