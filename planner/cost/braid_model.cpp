#include "planner/cost/braid_model.h"

#include <algorithm>
#include <cmath>

#include "planner/cost/analytic_layer.h"
#include "planner/cost/braid_work.h"

namespace braid {

namespace {

std::size_t index(Recompute recompute) { return static_cast<std::size_t>(recompute); }

// Embedding and head were measured together: each is charged half.
const MeasuredLayer* measured_layer(const Profile* profile, const LayerType& type, double& share) {
  if (profile == nullptr) return nullptr;
  if (const MeasuredLayer* own = profile->layer(type.name)) return own;
  if (type.shape.kind != LayerKind::embedding && type.shape.kind != LayerKind::head) return nullptr;
  share = 0.5;
  return profile->layer("outside");
}

// Context parallelism cuts the tokens of such a model in zigzag.
bool is_causal(const Model& model) {
  return std::ranges::any_of(model.types, [](const LayerType& type) {
    return type.shape.attention == AttentionKind::causal;
  });
}

}  // namespace

BraidModel::BraidModel(const Model& model, const Cluster& cluster, const Profile* profile,
                       const Settings& settings)
    : model_(model),
      cluster_(cluster),
      profile_(profile),
      settings_(settings),
      network_(cluster, profile, settings.assumptions.link_efficiency, settings.analytic),
      redistributions_(network_.topology(), is_causal(model)),
      slack_(settings.assumptions.allocator_slack) {
  if (profile != nullptr) {
    correction_ = profile->correction.value_or(Correction{});
    slack_ = profile->allocator_slack.value_or(slack_);
    context_ = profile->context;
    std::map<int, Points> meetings;
    for (const MeetingSample& s : profile->meetings)
      meetings[s.ranks].emplace_back(s.apart.value(), s.wait * s.apart.value());
    for (auto& [ranks, points] : meetings) {
      const auto& [apart, waited] = std::ranges::max(points);
      const double rare = waited / apart;
      meetings_.emplace(ranks, Waits{Curve(std::move(points)), rare});
    }
  }
  for (const LayerType& type : model.types) {
    Facts f;
    f.shape = type.shape;
    f.flops = forward_flops(type.shape);
    f.selective = recompute_flops(type.shape, Recompute::selective);
    f.traffic = static_cast<double>(forward_traffic(type.shape, settings.precision).value());
    for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full})
      f.transient[index(r)] =
          static_cast<double>(transient_bytes(type.shape, r, settings.precision).value());
    f.boundary = static_cast<double>(boundary_bytes(type.shape, settings.precision).value());
    f.measured = measured_layer(profile, type, f.forward_share);
    if (f.measured != nullptr) {
      f.times = MeasuredTimes::from(*f.measured, type.shape);
      f.forward = fit_forward(*f.measured, type.shape.tokens, f.forward_share < 1 ? 1 : 2);
    }
    facts_.push_back(f);
  }
  knows_moments_ = finds_moments();
}

template <class Visit>
void BraidModel::visit_device_types(const StageSite& site, Visit visit) const {
  const DeviceSpan span = devices_of_stage(site.stage, site.mesh);
  int first = 0;
  for (const NodeGroup& nodes : cluster_.groups) {
    const int end = first + nodes.count * nodes.devices;
    const int next = first <= span.first  // the stage's first device that these nodes may hold
                         ? span.first
                         : span.at((first - span.first + span.stride - 1) / span.stride);
    if (next < std::min(end, span.end))
      visit(cluster_.device_types[static_cast<std::size_t>(nodes.device_type)]);
    first = end;
  }
}

std::vector<const DeviceType*> BraidModel::device_types(const StageSite& site) const {
  std::vector<const DeviceType*> types;
  visit_device_types(site, [&](const DeviceType& device) {
    if (std::ranges::find(types, &device) == types.end()) types.push_back(&device);
  });
  return types;
}

Bytes BraidModel::least_memory(const StageSite& site) const {
  Bytes least{std::numeric_limits<std::int64_t>::max()};
  visit_device_types(site, [&](const DeviceType& d) { least = std::min(least, d.memory); });
  return least;
}

// Everything that a layer's price depends on: device types, links, alignment to nodes, whether the
// stage holds the copy of a tied embedding, whose distance to the first stage only the last one
// pays; the mesh, the micro-batches, and whether backward is split.
StageClass BraidModel::stage_class(const StageSite& site) const {
  const std::vector<int> place =
      network_.topology().signature(devices_of_stage(site.stage, site.mesh));
  StageClass key(place.begin(), place.end());
  const bool splits_backward = weights_waiting(site.shape, 0) > 0;
  key.insert(key.end(), {site.last() ? 1 : 0, site.mesh.stages, static_cast<int>(site.mesh.order),
                         site.micro_batch, site.shape.micro_batches, splits_backward ? 1 : 0});
  // Devices that rest work faster.
  if (profile_ != nullptr && profile_->rest_gain)
    key.insert(key.end(), {static_cast<int>(site.shape.schedule), site.shape.chunks});
  return key;
}

// Product by product on a device model.
BraidModel::Compute BraidModel::analytic(const Facts& f, const Strategy& s, double samples,
                                         const DeviceType& device) const {
  const DeviceModel model = device_model_of(device, settings_.precision);
  const AnalyticTimes t = analytic_layer(model, f.shape, s, samples, settings_.precision);
  const double whole = f.flops.total().value();
  const double repeated = whole > 0 ? f.selective.total().value() / whole : 0.0;
  const double recompute = s.recompute == Recompute::full        ? t.forward
                           : s.recompute == Recompute::selective ? repeated * t.forward
                                                                 : 0.0;
  return {.forward = t.forward,
          .backward_input = t.backward_input,
          .backward_weight = t.backward_weight,
          .recompute = recompute,
          .attention = t.attention};
}

BraidModel::Compute BraidModel::compute(const Facts& f, const Strategy& s, double samples,
                                        const DeviceType& device,
                                        const PipelineShape& pipeline) const {
  const Assumptions& a = settings_.assumptions;
  const double attention_share =
      f.flops.total().value() > 0 ? f.selective.total().value() / f.flops.total().value() : 0.0;
  if (f.times) {
    const ComputeTimes t = (*f.times)(s, samples);
    const double recompute = s.recompute == Recompute::full        ? t.full
                             : s.recompute == Recompute::selective ? t.selective
                                                                   : 0.0;
    const double rested = profile_->rest_gain.value_or(0) * resting_share(pipeline);
    const double factor = correction_.compute * (1 - rested);
    return {.forward = factor * t.forward,
            .backward_input = factor * t.backward_input,
            .backward_weight = factor * t.backward_weight,
            .recompute = factor * recompute,
            .attention = factor * attention_share * t.forward};
  }
  if (settings_.analytic) return analytic(f, s, samples, device);
  const double split = static_cast<double>(s.tp) * s.cp;
  // Embedding and head stay in bf16 beside blocks in fp8, and so does attention.
  const bool fp8 = settings_.precision == Precision::fp8 && f.shape.kind == LayerKind::block;
  const double matmul_rate =
      fp8 ? device.peak(Precision::fp8).value() * a.fp8_efficiency
          : device.wide_peak(settings_.precision).value() * a.matmul_efficiency;
  const double attention_rate =
      device.wide_peak(settings_.precision).value() * a.attention_efficiency;
  const Flops products = s.tensor_split() > f.shape.kv_heads
                             ? forward_flops(f.shape, s.tensor_split()).matmul
                             : f.flops.matmul;
  const double matmul = samples / split * products.value() / matmul_rate;
  const double attention = samples / split * f.flops.attention.value() / attention_rate;
  const double elementwise = samples / split * f.traffic / memory_rate(device);
  Compute c;
  c.attention = attention;
  if (f.forward) {
    // Measured. What backward splits into was not: half for each operand, as its FLOPs are.
    const double whole =
        f.forward->per_sample ? f.forward->line(samples) / split : f.forward->line(samples / split);
    c.forward = c.backward_input = c.backward_weight =
        correction_.compute * f.forward_share * std::max(0.0, whole);
    c.recompute = s.recompute == Recompute::full        ? c.forward
                  : s.recompute == Recompute::selective ? attention_share * c.forward
                                                        : 0.0;
    c.attention = attention_share * c.forward;
    return c;
  }
  const double overhead = a.layer_overhead.value();
  c.forward = matmul + attention + elementwise + overhead;
  c.backward_input = matmul + kScoresBackward * attention + 2 * elementwise + overhead;
  c.backward_weight = matmul;
  if (s.recompute == Recompute::full) c.recompute = c.forward;
  if (s.recompute == Recompute::selective)
    c.recompute = samples / split * f.selective.matmul.value() / matmul_rate +
                  samples / split * f.selective.attention.value() / attention_rate;
  return c;
}

// By its FLOPs and bytes a layer computes as long under every strategy.
LayerTime BraidModel::least_compute(int type, const StageSite& site) const {
  const Facts& f = facts_[static_cast<std::size_t>(type)];
  if (f.times || f.forward || settings_.analytic) return {};
  const Strategy split{.dp = site.mesh.stage_devices()};
  const double samples = static_cast<double>(site.micro_batch) / split.dp;
  LayerTime time;
  for (const DeviceType* device : device_types(site)) {
    const Compute c = compute(f, split, samples, *device, site.shape);
    time.forward_compute = std::max(time.forward_compute, c.forward);
    time.backward_input_compute = std::max(time.backward_input_compute, c.backward_input);
    time.backward_weight_compute = std::max(time.backward_weight_compute, c.backward_weight);
  }
  return time;
}

// Measured with all devices at work, or a share of what the maker promises.
double BraidModel::memory_rate(const DeviceType& device) const {
  const bool measured = profile_ != nullptr && !profile_->gemms.empty();
  return device.memory_bandwidth.value() *
         (measured ? 1.0 : settings_.assumptions.memory_efficiency);
}

double BraidModel::redistribute(int type, const ActivationLayout& from, const ActivationLayout& to,
                                const StageSite& site) const {
  const DeviceSpan stage = devices_of_stage(site.stage, site.mesh);
  const Redistribution moves = redistributions_.of(from, to, site.mesh, site.stage);
  // Every device holds one share of the tokens before and after.
  const double bytes = facts_[static_cast<std::size_t>(type)].boundary *
                       static_cast<double>(site.micro_batch) / site.mesh.stage_devices();
  return correction_.tensor *
         network_.exchange(moves.moved * bytes, moves.far * bytes, moves.among, stage);
}

Seconds BraidModel::transfer(int type, const StageSite& site) const {
  if (site.last()) return Seconds();
  // Sequence, context and data parallelism together leave every device one share of the tokens.
  const double bytes = facts_[static_cast<std::size_t>(type)].boundary *
                       static_cast<double>(site.micro_batch) / site.mesh.stage_devices();
  return Seconds(correction_.transfer *
                 network_.transfer(bytes, devices_of_stage(site.stage, site.mesh),
                                   devices_of_stage(site.stage + 1, site.mesh)));
}

Bytes BraidModel::held(const LayerMemory& memory, const StageSite& site) const {
  return scaled(memory.activations, in_flight(site.shape, site.stage)) +
         weights_waiting(site.shape, site.stage) * memory.deferred;
}

Bytes BraidModel::resident(const LayerMemory& memory, const StageSite& site) const {
  const Bytes waits = held(memory, site);
  return memory.states() + memory.constants + waits - memory.in_turn + slack(waits);
}

// Slack is charged for all that a layer ever holds, whichever moment is the worst.
Bytes BraidModel::least_resident(const LayerCost& cost, const Strategy& strategy,
                                 const StageSite& site) const {
  if (!knows_moments_) return resident(cost.memory, site);
  const LayerMemory& memory = cost.memory;
  const HeldTogether together = held_together(site.shape, site.stage);
  Bytes least = memory.weights + memory.optimizer + memory.constants +
                std::int64_t{together.activations} * memory.activations +
                std::int64_t{together.deferred} * memory.deferred + slack(held(memory, site));
  if (gradients_stay(strategy)) {
    least += memory.gradients;
  } else if (together.gradients) {
    const bool scattered = cost.short_lived.gradient > Bytes();
    least += scattered ? std::min(memory.gradients, cost.short_lived.share) : memory.gradients;
  }
  return least;
}

Bytes BraidModel::slack(Bytes in_use) const { return scaled(in_use, slack_); }

Bytes BraidModel::stage_overhead(const StageSite& site) const {
  if (context_) return *context_;
  bool on_gpus = false;
  bool assumed = false;
  Bytes stated;
  visit_device_types(site, [&](const DeviceType& d) {
    on_gpus |= d.kind == DeviceKind::gpu;
    assumed |= !d.reserve;
    stated = std::max(stated, d.reserve.value_or(Bytes()));
  });
  if (!assumed || !on_gpus) return stated;
  const int axes = site.mesh.stage_devices() > 1 ? 3 : 0;  // tensor, context, data
  const int communicators =
      (site.mesh.devices > 1 ? 1 : 0) + axes + (site.shape.stages > 1 ? 1 : 0);
  return std::max(
      stated, settings_.assumptions.context + communicators * settings_.assumptions.communicator);
}

// A profile of another system has measured peaks, which say nothing of the moments behind them.
bool BraidModel::finds_moments() const {
  if (profile_ != nullptr && profile_->only_stage) return false;
  return std::ranges::none_of(facts_, [](const Facts& f) {
    return f.measured != nullptr && (!f.measured->saved.empty() || f.measured->parameter_bytes);
  });
}

Bytes BraidModel::message(int type, const StageSite& site) const {
  const auto whole = static_cast<std::int64_t>(facts_[static_cast<std::size_t>(type)].boundary);
  return scaled(Bytes(whole * site.micro_batch), 1.0 / site.mesh.stage_devices());
}

Bytes BraidModel::looked_at(int type, const StageSite& site) const {
  const LayerShape& shape = facts_[static_cast<std::size_t>(type)].shape;
  return scaled(
      Bytes(shape.cross_tokens * shape.hidden * bytes_of(settings_.precision) * site.micro_batch),
      1.0 / site.mesh.stage_devices());
}

// A stage keeps what it sends until as many messages have followed as there are stages. What
// cross-attention looks at it keeps once for every micro-batch in flight, if it has such layers.
// Where stages have several chunks the last one sends to the first, and gradients go back.
Bytes BraidModel::messages(const StageSite& site) const {
  const bool around = site.shape.chunks > 1 && site.shape.stages > 1;
  const int ways = around ? 2 : (site.first() ? 0 : 1) + (site.last() ? 0 : 1);
  const int most = std::min(site.shape.stages, site.shape.micro_batches * site.shape.chunks);
  Bytes widest, crossed;
  for (int type = 0; type < static_cast<int>(facts_.size()); ++type) {
    widest = std::max(widest, message(type, site));
    crossed = std::max(crossed, looked_at(type, site));
  }
  const double kept = in_flight(site.shape, site.stage) * site.shape.chunks +
                      weights_waiting(site.shape, site.stage);
  return std::int64_t{ways} * most * widest + scaled(crossed, kept);
}

Bytes BraidModel::budget(Bytes limit, const StageSite& site) const {
  const Bytes all = least_memory(site);
  return limit == Bytes() ? all : std::min(all, limit);
}

StageWeights BraidModel::weights(const PipelineShape& shape, int stage) const {
  StageWeights weights = stage_weights(shape, stage);
  if (shape.stages == 1) weights.ramp = {};  // nobody else fills or drains
  return weights;
}

}  // namespace braid
