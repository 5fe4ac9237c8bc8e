// The price of one layer: compute, the communication its strategy brings, what overlap leaves
// exposed, and memory.

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/cost/braid_model.h"

namespace braid {

struct BraidModel::Work {
  const Facts& facts;
  const Strategy& strategy;
  const StageSite& site;
  DeviceSpan where;
  const DeviceType& device;
  double samples;  // of a micro-batch, on one device
  Compute compute;
  double dense;    // parameters on one device that all replicas share
  double experts;  // parameters on one device that belong to experts
  double tied;     // elements of a tied output matrix, where it is a copy of its own
};

namespace {

double by_split(const BySplit& values, int split) {
  const auto found = values.find(split);
  if (found != values.end()) return found->second;
  const auto last = std::prev(values.end());
  return last->second * last->first / split;  // splits evenly beyond what was measured
}

Bytes whole_bytes(double bytes) { return Bytes(static_cast<std::int64_t>(std::ceil(bytes))); }

}  // namespace

// Whether a profile says how large the layer is, a tied matrix included.
bool BraidModel::has_measured_parameters(const Facts& f) const {
  const LayerKind kind = f.shape.kind;
  const bool outside = kind == LayerKind::embedding || kind == LayerKind::head;
  return (profile_ != nullptr && profile_->only_stage && outside) ||
         (f.measured != nullptr && f.measured->parameter_bytes);
}

// Parameters of one device, experts among them.
double BraidModel::parameters(const Facts& f, const Strategy& s, const StageSite& site) const {
  const LayerKind kind = f.shape.kind;
  if (profile_ != nullptr && profile_->only_stage &&
      (kind == LayerKind::embedding || kind == LayerKind::head)) {
    constexpr double kStateBytes = 16;
    const bool pipelined = site.shape.stages > 1 && profile_->first_stage && profile_->last_stage;
    if (!pipelined)
      return by_split(profile_->only_stage->states, s.tensor_split()) / kStateBytes / 2;
    const auto& placed =
        kind == LayerKind::embedding ? profile_->first_stage : profile_->last_stage;
    return by_split(placed->states, s.tensor_split()) / kStateBytes;
  }
  if (f.measured != nullptr && f.measured->parameter_bytes)
    return *f.measured->parameter_bytes / 4 / s.tensor_split();
  return static_cast<double>(parameters_per_rank(f.shape, s.tensor_split(), s.ep));
}

// A tied head on one device reads the embedding's table. On several it holds a copy of its rows in
// its own layout: whole whatever ZeRO says, and without states, as the embedding's are updated.
double BraidModel::tied_elements(const Facts& f, const Strategy& s, const StageSite& site) const {
  if (!f.shape.tied || site.mesh.devices == 1 || has_measured_parameters(f)) return 0;
  return std::ceil(static_cast<double>(f.shape.vocab) / s.tensor_split()) *
         static_cast<double>(f.shape.hidden);
}

double BraidModel::expert_parameters(const Facts& f, const Strategy& s) const {
  return static_cast<double>(expert_parameters_per_rank(f.shape, s.tensor_split(), s.ep));
}

// Collectives of the forward and backward pass itself.
void BraidModel::communicate(const Work& w, LayerTime& time) const {
  const LayerShape& shape = w.facts.shape;
  const Strategy& s = w.strategy;
  const auto element = static_cast<double>(bytes_of(settings_.precision));
  const double tokens = w.samples * static_cast<double>(shape.tokens) / s.cp;
  const double hidden = tokens * static_cast<double>(shape.hidden) * element;
  const bool repeats = s.recompute == Recompute::full;

  if (s.tp > 1 && s.tp_kind == TensorKind::megatron) {
    // Sequence parallelism: gather before, scatter after each of attention and feed-forward; one of
    // the two for embedding and head. Backward mirrors it; the repeated gather of the saved input
    // hides behind the input gradient.
    const GroupShape group = group_along(w.site.mesh, s, Axis::tensor);
    double rounds = shape.kind == LayerKind::block ? 2.0 : 0.5;
    if (shape.cross_tokens > 0) rounds += 1;
    const double pass = rounds * 2 * network_.all_gather(hidden, group, w.where);
    time.forward_tensor = pass;
    time.backward_tensor = pass * (repeats ? 2 : 1);
  } else if (s.tp > 1 && shape.attention != AttentionKind::none) {
    // Ulysses: q, k, v to heads and the output back to tokens, each a rank's share.
    const GroupShape group = group_along(w.site.mesh, s, Axis::tensor);
    const auto width = static_cast<double>((2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim);
    const double share = tokens / s.tp * width * element / 4;
    const double pass = 4 * network_.all_to_all(share, group, w.where);
    time.forward_tensor = pass;
    time.backward_tensor = pass * (repeats || s.recompute == Recompute::selective ? 2 : 1);
  } else if (s.tp > 1 && shape.kind == LayerKind::block && shape.heads == 0) {
    // Nothing is known of the heads: four tensors of the hidden width.
    const GroupShape group = group_along(w.site.mesh, s, Axis::tensor);
    const double pass = 4 * network_.all_to_all(hidden / s.tp, group, w.where);
    time.forward_tensor = pass;
    time.backward_tensor = pass * (repeats ? 2 : 1);
  }

  if (s.cp > 1 && shape.attention != AttentionKind::none) {
    // The ring passes keys and values around once; backward passes them and their gradients.
    const GroupShape group = group_along(w.site.mesh, s, Axis::context);
    const double block = tokens * 2 * static_cast<double>(shape.kv_heads * shape.head_dim) *
                         element / (s.tp_kind == TensorKind::megatron ? s.tp : 1);
    const double step = network_.point_to_point(block, group.stride, w.where);
    const double ring = (s.cp - 1) * step;
    time.forward_context = exposed(w.compute.attention, ring);
    time.backward_context = exposed(2.5 * w.compute.attention, 2 * ring);
    if (repeats || s.recompute == Recompute::selective)
      time.backward_context += time.forward_context;
  }

  if (s.ep > 1) {
    const double routed = hidden / (s.tp_kind == TensorKind::ulysses ? s.tp : 1) *
                          static_cast<double>(shape.experts_per_token);
    const double pass = 2 * network_.all_to_all(routed, expert_group(w.site.mesh, s), w.where);
    time.forward_expert = pass;
    time.backward_expert = pass * (repeats ? 2 : 1);
  }
}

// ZeRO and gradient reduction: what runs beside compute, and what it leaves exposed.
void BraidModel::synchronise(const Work& w, LayerTime& time) const {
  const Strategy& s = w.strategy;
  const auto weight_bytes = static_cast<double>(bytes_of(settings_.precision));
  const auto gradient_bytes = static_cast<double>(bytes_of(settings_.gradient_precision));
  const GroupShape replicas = replica_group(w.site.mesh, s);
  // Experts are replicated over fewer devices, as far apart as their group is wide.
  const GroupShape expert_replicas{std::max(1, replicas.size / s.ep), replicas.stride * s.ep};
  const auto collective = [&](double bytes) {
    return network_.all_gather(w.dense * bytes, replicas, w.where) +
           network_.all_gather(w.experts * bytes, expert_replicas, w.where);
  };
  const double forward = w.compute.forward;
  const double backward =
      w.compute.backward_input + w.compute.backward_weight + w.compute.recompute;
  const double gather = collective(weight_bytes);
  const double scatter = collective(gradient_bytes);

  const bool gathers = s.zero == Zero::parameters;
  const bool scatters_at_once = s.zero == Zero::gradients || s.zero == Zero::parameters;
  double beside_backward = 0;
  if (gathers) {
    time.forward_gather = exposed(forward, gather);
    beside_backward += gather;
  }
  if (scatters_at_once && w.site.shape.micro_batches > 1) beside_backward += scatter;
  time.backward_gather = exposed(backward, beside_backward);

  // On the last micro-batch the reduction runs beside backward as well.
  double last = beside_backward;
  if (!scatters_at_once) {
    last += s.zero == Zero::none ? 2 * scatter : scatter;
  } else if (w.site.shape.micro_batches == 1) {
    last += scatter;
  }
  time.reduce = std::max(0.0, exposed(backward, last) - time.backward_gather);
  // Updated weights return while the next iteration's first forward runs.
  if (s.zero == Zero::optimizer || s.zero == Zero::gradients)
    time.regather = exposed(forward, gather);
  if (w.tied > 0) {
    // The gradient of the copy goes to the embedding. Ranks of one stage are at least neighbours.
    const int distance = std::max(1, stage_distance(w.site.mesh) * (w.site.shape.stages - 1));
    time.reduce += network_.point_to_point(w.tied * gradient_bytes, distance, w.where);
  }

  const double shards = s.zero == Zero::none ? 1 : replicas.size;
  const double expert_shards = s.zero == Zero::none ? 1 : expert_replicas.size;
  const Assumptions& a = settings_.assumptions;
  time.update = (w.dense / shards + w.experts / expert_shards) * a.optimizer_traffic /
                (w.device.memory_bandwidth.value() * a.memory_efficiency);
}

LayerMemory BraidModel::memory(const Work& w) const {
  const Strategy& s = w.strategy;
  const Facts& f = w.facts;
  const auto weight = static_cast<double>(bytes_of(settings_.precision));
  const auto gradient = static_cast<double>(bytes_of(settings_.gradient_precision));
  const double split = static_cast<double>(s.tp) * s.cp;
  const Split cut{.context = s.cp, .tensor = s.tp, .matrices = s.tp_kind == TensorKind::megatron};
  auto saved =
      static_cast<double>(saved_bytes(f.shape, s.recompute, settings_.precision, cut).value());
  double transient = f.transient[static_cast<std::size_t>(s.recompute)] / split;

  const bool outside = f.shape.kind == LayerKind::embedding || f.shape.kind == LayerKind::head;
  if (f.measured != nullptr && !f.measured->saved.empty()) {
    const double whole = by_split(f.measured->saved, s.tp * s.cp);
    if (s.recompute == Recompute::full && f.measured->saved_full) {
      saved = *f.measured->saved_full / split;
      transient = whole;
    } else {
      saved = whole;  // what selective recomputation would save was not measured: count none of it
      transient = 0;  // the measured peak of a step has it already
    }
  } else if (outside && profile_ != nullptr && profile_->only_stage) {
    // The activations of embedding and head peak at the loss, when no other layer works.
    const bool pipelined = w.site.shape.stages > 1 && profile_->first_stage && profile_->last_stage;
    const bool head = f.shape.kind == LayerKind::head;
    const auto& placed = !pipelined ? profile_->only_stage
                         : head     ? profile_->last_stage
                                    : profile_->first_stage;
    const double activations = by_split(placed->activations, s.tp * s.cp);
    saved = pipelined && !head ? activations : 0;
    transient = pipelined && !head ? 0 : head ? activations : 0;
  }

  // Two layers' gathered weights are alive under ZeRO-3: one at work, the next on its way.
  // Gradients that are scattered at once exist whole for two: one being made, one on its way.
  // Measured peaks have all of it already.
  double workspace = transient * w.samples;
  if (profile_ == nullptr || !profile_->only_stage) {
    const double mine = w.dense + w.experts;
    if (s.zero == Zero::parameters) workspace += 2 * weight * mine;
    if (s.zero == Zero::gradients || s.zero == Zero::parameters) workspace += 2 * gradient * mine;
    // Input and output gathered over the tensor group.
    if (s.tensor_split() > 1)
      workspace +=
          2 * w.samples * static_cast<double>(f.shape.tokens * f.shape.hidden) / s.cp * weight;
    // A weight gradient of bf16 factors is made in fp32 ahead of being added.
    if (settings_.precision != settings_.gradient_precision)
      workspace +=
          gradient * static_cast<double>(largest_matrix_per_rank(f.shape, s.tensor_split()));
  }
  LayerMemory memory = states(w);
  memory.activations = whole_bytes(saved * w.samples);
  memory.workspace = whole_bytes(workspace);
  return memory;
}

// A layer's parameters lie in two flat buffers, those of experts apart from the others. ZeRO gives
// each replica an equal share of a buffer, so the whole is padded to a multiple of the replicas.
LayerMemory BraidModel::states(const Work& w) const {
  const Strategy& s = w.strategy;
  const std::int64_t weight = bytes_of(settings_.precision);
  const std::int64_t gradient = bytes_of(settings_.gradient_precision);
  const std::int64_t optimizer =
      kMomentBytes + (settings_.precision == Precision::fp32 ? 0 : kMasterBytes);
  LayerMemory memory;
  const auto add = [&](double elements, std::int64_t replicas) {
    const auto whole = static_cast<std::int64_t>(std::ceil(elements));
    const std::int64_t share = s.zero == Zero::none ? whole : (whole + replicas - 1) / replicas;
    const std::int64_t padded = s.zero == Zero::none ? whole : share * replicas;
    const bool shards_weights = s.zero == Zero::parameters;
    const bool shards_gradients = s.zero == Zero::gradients || shards_weights;
    memory.weights += Bytes(weight * (shards_weights ? share : padded));
    memory.gradients += Bytes(gradient * (shards_gradients ? share : padded));
    memory.optimizer += Bytes(optimizer * share);
  };
  add(w.dense, s.replicas());
  add(w.experts, std::max(1, s.replicas() / s.ep));
  memory.weights += whole_bytes(w.tied * static_cast<double>(weight));
  memory.gradients += whole_bytes(w.tied * static_cast<double>(gradient));
  return memory;
}

LayerCost BraidModel::layer(int type, const Strategy& s, const StageSite& site) const {
  const Facts& f = facts_[static_cast<std::size_t>(type)];
  const DeviceType& device = slowest_device(site);
  const double samples = static_cast<double>(site.micro_batch) / s.dp;
  const double all = parameters(f, s, site);
  const double experts = std::min(all, expert_parameters(f, s));
  const Work work{.facts = f,
                  .strategy = s,
                  .site = site,
                  .where = devices_of_stage(site.stage, site.mesh),
                  .device = device,
                  .samples = samples,
                  .compute = compute(f, s, samples, device),
                  .dense = all - experts,
                  .experts = experts,
                  .tied = tied_elements(f, s, site)};
  LayerCost cost;
  cost.time.forward_compute = work.compute.forward;
  cost.time.backward_input_compute = work.compute.backward_input;
  cost.time.backward_weight_compute = work.compute.backward_weight;
  cost.time.recompute = work.compute.recompute;
  communicate(work, cost.time);
  synchronise(work, cost.time);
  cost.memory = memory(work);
  return cost;
}

}  // namespace braid
