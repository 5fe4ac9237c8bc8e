#include "planner/cost/galvatron_cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/core/error.h"

namespace braid {

namespace {

constexpr double kMegabyte = 1048576.0;
constexpr double kContextMegabytes = 1024.0;

double milliseconds(const ForwardFit& fit, double samples, int split) {
  return 1e3 * (fit.per_sample ? fit.line(samples) / split : fit.line(samples / split));
}

int degree(const Strategy& s) { return s.tp; }
bool ulysses(const Strategy& s) { return s.tp_kind == TensorKind::ulysses && s.tp > 1; }
bool checkpoint(const Strategy& s) { return s.recompute == Recompute::full; }
bool sharded(const Strategy& s) { return s.zero == Zero::parameters; }

double at_split(const BySplit& values, int split) {
  const auto found = values.find(split);
  if (found != values.end()) return found->second / kMegabyte;
  internal_check(!values.empty(), "a profile without memory figures passed its check");
  // A missing degree counts as half of the previous one.
  const auto last = std::prev(values.end());
  return last->second / kMegabyte * last->first / split;
}

// How Galvatron lets compute hide communication in embedding and head.
double hide(double compute, double comm, double overlap) {
  return overlap * compute > comm ? comm + (overlap * compute - comm) / overlap : comm;
}

}  // namespace

std::vector<int> galvatron_cuts(int blocks, int stages) {
  std::vector<int> cuts(static_cast<std::size_t>(stages), blocks / stages);
  cuts.back() += blocks % stages;
  return cuts;
}

GalvatronCost::GalvatronCost(const Profile& profile, const Model& model, int devices)
    : profile_(profile),
      devices_(devices),
      overlap_(profile.overlap_slowdown.value_or(1.0)),
      half_(profile.precision == Precision::fp32 ? 1.0 : 0.5) {
  const auto need = [&](bool present, const std::string& what) {
    if (!present)
      throw Error(
          {.what = fmt::format("Galvatron's formulas need {}", what),
           .where = fmt::format("profile '{}'", profile.name),
           .fix = "make the profile with 'braid import galvatron', or use --cost measured"});
  };
  need(profile.only_stage && profile.first_stage && profile.last_stage,
       "the measured memory of embedding and head");
  for (std::size_t t = 0; t < model.types.size(); ++t) {
    const LayerType& type = model.types[t];
    if (type.shape.kind != LayerKind::block) continue;
    const MeasuredLayer* measured = profile.layer(type.name);
    need(measured && !measured->compute.empty() && measured->parameter_bytes &&
             !measured->saved.empty() && measured->saved_full,
         fmt::format("compute and memory of layer type '{}'", type.name));
    BlockType block;
    const auto forward = fit_forward(*measured, type.shape.tokens, 2);
    need(forward.has_value(),
         fmt::format("compute of layer type '{}' at {} tokens", type.name, type.shape.tokens));
    block.forward = *forward;
    block.parameter_mb = *measured->parameter_bytes / kMegabyte;
    block.saved_mb = measured->saved;
    block.saved_full_mb = *measured->saved_full / kMegabyte;
    block.tokens = static_cast<double>(type.shape.tokens);
    block.hidden = static_cast<double>(type.shape.hidden);
    block.count = static_cast<int>(std::ranges::count(model.layers, static_cast<int>(t)));
    blocks_.push_back(std::move(block));
  }
  const MeasuredLayer* outside = profile.layer("outside");
  need(!blocks_.empty() && outside && !outside->compute.empty(),
       "the measured compute of embedding and head together (\"outside\")");
  const auto forward = fit_forward(*outside, model.sequence, 1);
  need(forward.has_value(), "the compute of embedding and head at this sequence length");
  outside_ = *forward;
}

std::int64_t GalvatronCost::local_samples(const GalvatronTask& task, const Strategy& strategy) {
  return task.batch / task.micro_batches / strategy.dp;
}

double GalvatronCost::bandwidth(int ranks, bool consecutive) const {
  const BandwidthSample* best = nullptr;
  for (const BandwidthSample& s : profile_.bandwidths) {
    if (s.op != Collective::all_reduce || s.ranks != ranks) continue;
    if (best == nullptr || (s.stride == 1) == consecutive) best = &s;
  }
  if (best == nullptr)
    throw Error({.what = fmt::format("no all-reduce bandwidth for groups of {}", ranks),
                 .where = fmt::format("profile '{}'", profile_.name),
                 .fix = "profile the hardware for every group size up to the cluster"});
  return best->bandwidth.value() / kMegabyte * 1e-3;
}

double GalvatronCost::pair_bandwidth(int stages) const {
  for (const BandwidthSample& s : profile_.bandwidths)
    if (s.op == Collective::point_to_point && s.stride == std::max(1, devices_ / stages))
      return s.bandwidth.value() / kMegabyte * 1e-3;
  throw Error({.what = fmt::format("no point-to-point bandwidth for {} stages", stages),
               .where = fmt::format("profile '{}'", profile_.name),
               .fix = "profile the hardware for every pipeline degree"});
}

double GalvatronCost::sweep(Collective op, int ranks, double megabytes) const {
  Points points;
  std::set<double> sizes;
  for (const CollectiveSample& s : profile_.collectives) {
    if (s.op != op || s.ranks != ranks) continue;
    const double size = static_cast<double>(s.bytes.value()) / kMegabyte;
    const double ms = s.seconds.value() * 1e3;
    if (size == megabytes) return ms;
    points.emplace_back(size, ms);
    sizes.insert(size);
  }
  if (sizes.size() < 2)
    throw Error({.what = fmt::format("no sweep over sizes of {} for {} ranks", name_of(op), ranks),
                 .where = fmt::format("profile '{}'", profile_.name),
                 .fix = "profile the hardware for every tensor-parallel degree"});
  return fit_line(points)(megabytes);
}

double GalvatronCost::boundary_mb(const BlockType& type, const GalvatronTask& task,
                                  const Strategy& strategy) const {
  return static_cast<double>(local_samples(task, strategy)) * type.tokens * type.hidden * 4 *
         half_ / kMegabyte;
}

double GalvatronCost::gradient_rate(const Strategy& strategy) const {
  return 1.0 / bandwidth(strategy.replicas(), strategy.tensor_split() == 1);
}

GalvatronPrice GalvatronCost::layer(int type, const Strategy& s, const GalvatronTask& task) const {
  const BlockType& block = blocks_[static_cast<std::size_t>(type)];
  const auto samples = static_cast<double>(local_samples(task, s));
  const double forward = milliseconds(block.forward, samples, degree(s));
  const double backward = forward * (checkpoint(s) ? 3.0 : 2.0);
  const double size = boundary_mb(block, task, s);

  double tensor = 0;
  if (ulysses(s)) {
    tensor = (checkpoint(s) ? 6 : 4) * sweep(Collective::all_to_all, s.tp, size);
  } else if (s.tp > 1) {
    tensor = (checkpoint(s) ? 9 : 6) * sweep(Collective::all_reduce, s.tp, size) / 2;
  }

  double gradients = 0;
  double synced = backward;
  if (s.replicas() > 1) {
    const double volume =
        2.0 * (s.replicas() - 1) / s.replicas() * block.parameter_mb / s.tensor_split() * half_;
    gradients = volume * gradient_rate(s);
    if (s.dp > 1)
      synced = std::max(backward, gradients) + (overlap_ - 1) * std::min(backward, gradients);
  }
  double rest = tensor + (sharded(s) ? gradients / 2 : 0);
  if (task.stages > 1) rest += 2.0 * task.stages * size / pair_bandwidth(task.stages) / block.count;
  return {.no_sync = forward + backward + rest,
          .sync = forward + synced + rest,
          .forward = forward + tensor / 3};
}

double GalvatronCost::state_ratio(const Strategy& s, const GalvatronTask& task) const {
  if (s.zero == Zero::none) return 1.0;
  const double z = 1.0 / s.replicas() + 0.003;
  const bool parameters = sharded(s);
  const bool accumulates = task.micro_batches > 1;
  if (half_ == 1.0) {
    if (!accumulates) return parameters ? z : 0.75 * z + 0.25;
    return parameters ? 0.75 * z + 0.25 : 0.5 * z + 0.5;
  }
  if (!accumulates) return parameters ? z : 7.0 / 8 * z + 1.0 / 8;
  return parameters ? 7.0 / 8 * z + 1.0 / 8 : 6.0 / 8 * z + 2.0 / 8;
}

double GalvatronCost::layer_memory(int type, const Strategy& s, const GalvatronTask& task,
                                   int stage) const {
  const BlockType& block = blocks_[static_cast<std::size_t>(type)];
  const auto samples = static_cast<double>(local_samples(task, s));
  const double in_flight = task.stages == 1 ? 1 : task.stages - stage;
  const double states = 4 * block.parameter_mb / s.tensor_split() * state_ratio(s, task);
  const double saved =
      checkpoint(s) ? block.saved_full_mb / degree(s) : at_split(block.saved_mb, degree(s));
  return std::ceil(states + saved * samples * in_flight);
}

const MeasuredOutside& GalvatronCost::placement(const GalvatronTask& task, int stage) const {
  if (task.stages == 1) return *profile_.only_stage;
  return stage == 0 ? *profile_.first_stage : *profile_.last_stage;
}

GalvatronPrice GalvatronCost::outside(const Strategy& s, const GalvatronTask& task,
                                      int stage) const {
  if (stage > 0 && stage + 1 < task.stages) return {};
  const auto samples = static_cast<double>(local_samples(task, s));
  const double share = task.stages > 1 ? 0.5 : 1.0;
  const double compute = share * milliseconds(outside_, samples, degree(s));
  const double replicas = s.replicas();
  double volume = 0;
  if (replicas > 1)
    volume = at_split(placement(task, stage).states, s.tensor_split()) / 4 * half_ *
             gradient_rate(s) * (replicas - 1) / replicas;
  const double forward = hide(compute, volume * (sharded(s) ? 0.5 : 0.0), overlap_);
  const double gather =
      s.tensor_split() > 1
          ? sweep(Collective::all_reduce, s.tp, boundary_mb(blocks_.front(), task, s)) / 2
          : 0.0;
  const double gathers = task.stages > 1 ? gather : 2 * gather;
  const auto total = [&](double backward_share) {
    return forward + hide(2 * compute, volume * backward_share, overlap_) + gathers;
  };
  return {.no_sync = total(sharded(s) ? 0.5 : 0.0),
          .sync = total(sharded(s) ? 1.0 : 0.5),
          .forward = forward + gathers / 2};
}

double GalvatronCost::outside_memory(const Strategy& s, const GalvatronTask& task,
                                     int stage) const {
  if (stage > 0 && stage + 1 < task.stages) return kContextMegabytes;
  const MeasuredOutside& measured = placement(task, stage);
  const auto samples = static_cast<double>(local_samples(task, s));
  const double in_flight = task.stages > 1 && stage == 0 ? task.stages : 1;
  return at_split(measured.states, s.tensor_split()) * state_ratio(s, task) +
         at_split(measured.activations, degree(s)) * samples * in_flight + kContextMegabytes;
}

double GalvatronCost::group_samples(const GalvatronTask& task, int width) const {
  const std::int64_t micro_batch = task.batch / task.micro_batches;
  const int stage_devices = devices_ / task.stages;
  return static_cast<double>(micro_batch) * width / stage_devices;
}

double GalvatronCost::sequence_buffer(const GalvatronTask& task, int widest) const {
  double largest = 0;
  for (const BlockType& block : blocks_) largest = std::max(largest, block.tokens * block.hidden);
  const double samples = group_samples(task, widest);
  return samples * largest * 4 / kMegabyte * half_;
}

double GalvatronCost::change(int from, int to, const GalvatronTask& task) const {
  if (from == to) return 0;
  // In milliseconds. The original's unit factor is 105 times too large; it stands here because its
  // plans depend on it.
  constexpr double kUnit = 1e-4;
  const int k = std::max(from, to);
  const double samples = group_samples(task, k);
  const BlockType& block = blocks_.front();
  return (k - 1.0) / k * samples * block.tokens * block.hidden * 2 / bandwidth(k, true) * kUnit;
}

double GalvatronCost::iteration(std::span<const double> no_sync, std::span<const double> sync,
                                int micro_batches) {
  const auto stages = static_cast<int>(no_sync.size());
  double sum = 0;
  for (const double c : no_sync) sum += c;
  const double first = no_sync.front();
  const double fill = sum + (micro_batches - 1) * no_sync.back();
  const double rest = sum - first;
  const double ramp = std::min(stages - 1, micro_batches - 1) * first;
  const double drain = std::max(ramp / 3, rest / 3) + std::max(2 * ramp / 3, 2 * rest / 3) +
                       first * std::max(0, micro_batches + 1 - stages);
  double late = 0;
  double before = 0;
  for (std::size_t i = 0; i < no_sync.size(); ++i) {
    before += no_sync[i];
    late = std::max(late, sync[i] - before);
  }
  return (std::max(fill, drain) + late) * 1e-3;
}

double GalvatronCost::outside_overhead() { return kContextMegabytes; }

double GalvatronCost::budget(Bytes limit) {
  const double gigabytes = static_cast<double>(limit.value()) / kMegabyte / 1024;
  return gigabytes * 1024 * (gigabytes > 20 ? 0.8 : 1.0);
}

}  // namespace braid
