// The price of one layer: its compute, its memory, and the sum with what braid_communication.cpp
// adds.

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/core/block_pool.h"
#include "planner/cost/braid_work.h"

namespace braid {

namespace {

double by_split(const BySplit& values, int split) {
  const auto found = values.find(split);
  if (found != values.end()) return found->second;
  const auto last = std::prev(values.end());
  return last->second * last->first / split;  // splits evenly beyond what was measured
}

// Of a device's matrix products, beside their factors (runtime/ops/fused_linear.cpp).
constexpr double kProductScratch = 32 << 20;

// By how much a block of PyTorch's allocator is larger than a tensor that stays: it takes a segment
// of whole 2 MiB for itself, of which it gives back no rest up to 1 MiB.
Bytes unsplit(std::int64_t bytes) {
  constexpr std::int64_t kOwnSegment = 10 << 20, kGrain = 2 << 20, kLeastRest = 1 << 20;
  if (bytes < kOwnSegment) return Bytes();
  const std::int64_t rest = (kGrain - bytes % kGrain) % kGrain;
  return Bytes(rest <= kLeastRest ? rest : 0);
}

// The same of a block of a group's own memory.
Bytes unsplit_in_group(std::int64_t bytes) {
  return BlockPool::rounded(Bytes(bytes)) - Bytes(bytes);
}

// Each pass of a stage of unequal devices takes as long as on the type that is slowest at it.
void wait_for(LayerTime& stage, const LayerTime& device) {
  if (device.forward() > stage.forward()) {
    stage.forward_compute = device.forward_compute;
    stage.forward_tensor = device.forward_tensor;
    stage.forward_context = device.forward_context;
    stage.forward_expert = device.forward_expert;
    stage.forward_gather = device.forward_gather;
  }
  if (device.backward_input() > stage.backward_input()) {
    stage.backward_input_compute = device.backward_input_compute;
    stage.recompute = device.recompute;
    stage.backward_tensor = device.backward_tensor;
    stage.backward_context = device.backward_context;
    stage.backward_expert = device.backward_expert;
    stage.backward_gather = device.backward_gather;
    stage.hidden_tensor = device.hidden_tensor;
    stage.hidden_context = device.hidden_context;
    stage.hidden_gather = device.hidden_gather;
  }
  stage.backward_weight_compute =
      std::max(stage.backward_weight_compute, device.backward_weight_compute);
  if (device.reduce > stage.reduce) {
    stage.reduce = device.reduce;
    stage.hidden_reduce = device.hidden_reduce;
  }
  if (device.once_update() > stage.once_update()) {
    stage.update = device.update;
    stage.regather = device.regather;
  }
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
    return *f.measured->parameter_bytes / 4 / s.tensor_split() / s.hidden_split();
  return static_cast<double>(
      parameters_per_rank(f.shape, s.tensor_split(), s.ep, s.hidden_split()));
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

// What lives while the layer is at work, given the transient bytes of a sample where they were not
// counted.
ShortLived BraidModel::short_lived(const Work& w, const Split& cut, double transient) const {
  const Strategy& s = w.strategy;
  const Facts& f = w.facts;
  const std::int64_t weight = bytes_of(settings_.precision);
  const std::int64_t gradient = bytes_of(settings_.gradient_precision);
  const std::optional<double> counted = f.times ? f.times->workspace(s, w.samples) : std::nullopt;
  const bool gathers_tokens = s.tp_kind != TensorKind::ulysses && s.outer() > 1;
  const double tokens = gathers_tokens
                            ? w.samples * static_cast<double>(f.shape.tokens * f.shape.hidden) /
                                  s.cp / (s.square * s.square) * static_cast<double>(weight)
                            : 0;
  // A weight gradient of bf16 factors is made in fp32 ahead of being added.
  const double matrix =
      settings_.precision == settings_.gradient_precision
          ? 0
          : static_cast<double>(gradient * largest_matrix_per_rank(f.shape, s.tensor_split())) /
                s.hidden_split();
  double at_work = counted.value_or(transient * w.samples);
  if (!counted && f.shape.kind == LayerKind::head) {
    const std::int64_t row =
        (f.shape.vocab + s.tensor_split() - 1) / s.tensor_split() * bytes_of(settings_.precision);
    const auto rows = static_cast<std::int64_t>(at_work / static_cast<double>(row));
    at_work = std::min(at_work, static_cast<double>(rows_of_logits(rows, row) * row));
  }
  ShortLived parts;
  parts.at_work = whole_bytes(at_work);
  if (profile_ != nullptr && profile_->only_stage) return parts;  // measured peaks have the rest
  // Input and output gathered over the tensor group; a block's input once more, ahead of the weight
  // gradients that it is for.
  const bool early = f.shape.kind == LayerKind::block && s.tp_kind == TensorKind::megatron &&
                     weights_waiting(w.site.shape, 0) == 0;
  if (!counted) at_work += (early ? 3 : 2) * tokens + matrix;
  // The tensor group's own memory holds a piece more than the worst moment has use for.
  if (early) at_work += tokens;
  if (s.tp_kind == TensorKind::spatial_temporal) at_work += square_workspace(w);
  // What waits for its weight gradient stays beside the sub-layers that are still to come.
  if (weights_waiting(w.site.shape, 0) > 0)
    at_work += w.samples * static_cast<double>(
                               deferred_beside_bytes(f.shape, settings_.precision, cut).value());
  parts.at_work = whole_bytes(at_work);
  if (f.shape.kind == LayerKind::block)
    parts.by_weight = whole_bytes(tokens + (counted ? kProductScratch : matrix));
  if (weights_waiting(w.site.shape, 0) > 0) {
    parts.waits = deferred_gathers(f.shape, cut);
    parts.waiting = whole_bytes(tokens);
  }
  const auto add = [&](double elements, std::int64_t replicas) {
    if (s.zero == Zero::none || s.zero == Zero::optimizer || replicas == 1) return;
    const std::int64_t share =
        (static_cast<std::int64_t>(std::ceil(elements)) + replicas - 1) / replicas;
    const auto whole = [&](std::int64_t element) {
      return BlockPool::rounded(Bytes(element * share * replicas));
    };
    if (s.zero == Zero::parameters) parts.gathered += whole(weight);
    parts.gradient += whole(gradient);
    parts.share += Bytes(gradient * share);
  };
  add(w.dense, s.replicas());
  add(w.experts, std::max(1, s.replicas() / s.ep));
  return parts;
}

LayerMemory BraidModel::memory(const Work& w, ShortLived& parts) const {
  const Strategy& s = w.strategy;
  const Facts& f = w.facts;
  const double split = static_cast<double>(s.tp) * s.cp;
  const bool by_samples = rows_share_samples(s, w.site.micro_batch);
  const double samples = by_samples ? w.samples / s.square : w.samples;  // on one device
  const Split cut{.context = s.cp,
                  .tensor = s.outer(),
                  .matrices = s.tp_kind != TensorKind::ulysses,
                  .square = s.square,
                  .rows = by_samples ? 1 : s.square};
  auto saved =
      static_cast<double>(saved_bytes(f.shape, s.recompute, settings_.precision, cut).value());
  double transient = f.transient[static_cast<std::size_t>(s.recompute)] / split;

  const bool outside = f.shape.kind == LayerKind::embedding || f.shape.kind == LayerKind::head;
  const bool elsewhere = profile_ != nullptr && profile_->only_stage;
  if (f.measured != nullptr && !f.measured->saved.empty()) {
    const double whole = by_split(f.measured->saved, s.tp * s.cp);
    if (s.recompute == Recompute::full && f.measured->saved_full) {
      saved = *f.measured->saved_full / split;
      transient = whole;
    } else {
      saved = whole;  // what selective recomputation would save was not measured: count none of it
      transient = 0;  // the measured peak of a step has it already
    }
  } else if (outside && elsewhere) {
    // The activations of embedding and head peak at the loss, when no other layer works.
    const bool pipelined = w.site.shape.stages > 1 && profile_->first_stage && profile_->last_stage;
    const bool head = f.shape.kind == LayerKind::head;
    const auto& placed = !pipelined ? profile_->only_stage
                         : head     ? profile_->last_stage
                                    : profile_->first_stage;
    const double activations = by_split(placed->activations, s.tp * s.cp);
    saved = pipelined && !head ? activations : 0;
    transient = head ? activations : 0;
  }

  LayerMemory memory = states(w);
  memory.activations = whole_bytes(saved * samples);
  if (weights_waiting(w.site.shape, 0) > 0)
    memory.deferred = scaled(deferred_bytes(f.shape, settings_.precision, cut), samples);
  if (!elsewhere) memory.constants += table_bytes(f.shape, cut);
  parts = short_lived(w, cut, transient);
  // Of one micro-batch either the activations or what is deferred are there.
  if (memory.deferred > Bytes())
    memory.in_turn = std::min(memory.activations, memory.deferred - parts.waits * parts.waiting);
  // Two layers' gathered weights are alive under ZeRO-3: one at work, the next on its way.
  // Gradients that are scattered at once exist whole for two: one being made, one on its way. What
  // arrives of them stands beside what earlier micro-batches left, of both when the first leaves.
  const Bytes leaving =
      parts.share == Bytes()
          ? Bytes()
          : parts.share +
                scaled(Bytes(f.shape.tokens * f.shape.hidden * bytes_of(settings_.precision)),
                       w.samples / split);
  memory.workspace =
      std::max(parts.at_work, leaving) + 2 * parts.gathered + 2 * parts.gradient + parts.share;
  // A step of one micro-batch makes a block's gradients when those behind it have freed their
  // activations: each block needs room for the larger of the two, and one of them for both.
  const PipelineShape& shape = w.site.shape;
  if (shape.stages == 1 && shape.micro_batches == 1 && f.shape.kind == LayerKind::block &&
      !gradients_stay(s)) {
    memory.in_turn = std::min(memory.activations, memory.gradients);
    memory.workspace += memory.in_turn;
  }
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
    // Wholes that a group sums up or publishes lie in its own memory.
    const bool alone = replicas == 1;
    const std::int64_t weights = weight * (shards_weights ? share : padded);
    const std::int64_t gradients = gradient * (shards_gradients ? share : padded);
    const bool published = s.zero == Zero::optimizer || s.zero == Zero::gradients;
    memory.constants += alone || !published ? unsplit(weights) : unsplit_in_group(weights);
    memory.constants +=
        alone || shards_gradients ? unsplit(gradients) : unsplit_in_group(gradients);
    memory.constants += unsplit(optimizer == kMomentBytes ? 0 : kMasterBytes * share) +
                        2 * unsplit(kMomentBytes / 2 * share);
  };
  add(w.dense, s.replicas());
  add(w.experts, std::max(1, s.replicas() / s.ep));
  // A block has a copy of the table of relative positions that its stack shares.
  const LayerShape& shape = w.facts.shape;
  const double copied = w.tied + static_cast<double>(shape.bias_buckets * shape.heads);
  memory.weights += whole_bytes(copied * static_cast<double>(weight));
  memory.gradients += whole_bytes(copied * static_cast<double>(gradient));
  return memory;
}

LayerCost BraidModel::layer(int type, const Strategy& s, const StageSite& site) const {
  const Facts& f = facts_[static_cast<std::size_t>(type)];
  const double samples = static_cast<double>(site.micro_batch) / s.dp;
  const double all = parameters(f, s, site);
  const double experts = std::min(all, expert_parameters(f, s));
  LayerCost cost;
  bool first = true;
  for (const DeviceType* device : device_types(site)) {
    const Work work{.facts = f,
                    .strategy = s,
                    .site = site,
                    .where = devices_of_stage(site.stage, site.mesh),
                    .device = *device,
                    .samples = samples,
                    .compute = compute(f, s, samples, *device, site.shape),
                    .dense = all - experts,
                    .experts = experts,
                    .tied = tied_elements(f, s, site)};
    if (first) {
      cost.time = time(work);
      cost.memory = memory(work, cost.short_lived);
    } else {
      wait_for(cost.time, time(work));
    }
    first = false;
  }
  return cost;
}

LayerTime BraidModel::time(const Work& work) const {
  LayerTime time;
  time.forward_compute = work.compute.forward;
  time.backward_input_compute = work.compute.backward_input;
  time.backward_weight_compute = work.compute.backward_weight;
  time.recompute = work.compute.recompute;
  if (work.strategy.tp_kind == TensorKind::spatial_temporal) add_up_in_square(work, time);
  communicate(work, time);
  synchronise(work, time);
  return time;
}

}  // namespace braid
