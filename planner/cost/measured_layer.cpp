#include "planner/cost/measured_layer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace braid {

namespace {

// How far apart two degrees are, in halvings.
double distance(int a, int b) { return std::abs(std::log2(static_cast<double>(a) / b)); }

double total_flops(const LayerShape& shape, std::int64_t tokens) {
  LayerShape longer = shape;
  longer.tokens = tokens;
  return forward_flops(longer).total().value();
}

double value_or_zero(const Curve& curve, double at) { return curve.empty() ? 0 : curve(at); }

}  // namespace

std::optional<MeasuredTimes> MeasuredTimes::from(const MeasuredLayer& layer,
                                                 const LayerShape& shape) {
  std::optional<std::int64_t> length;
  for (const ComputeSample& s : layer.compute)
    if (s.backward_input && s.backward_weight &&
        (!length || std::abs(s.sequence - shape.tokens) < std::abs(*length - shape.tokens)))
      length = s.sequence;
  if (!length) return std::nullopt;

  struct Samples {
    Points forward, backward_input, backward_weight, selective, full;
    Points workspace, workspace_selective, workspace_full;
  };
  std::map<Cut, Samples> by_cut;
  for (const ComputeSample& s : layer.compute) {
    if (s.sequence != *length || !s.backward_input || !s.backward_weight) continue;
    Samples& samples = by_cut[{s.kind, s.split, s.context}];
    const auto add = [&](Points& points, const auto& value) {
      if (value) points.emplace_back(s.samples, static_cast<double>(value->value()));
    };
    add(samples.forward, std::optional(s.forward));
    add(samples.backward_input, s.backward_input);
    add(samples.backward_weight, s.backward_weight);
    add(samples.selective, s.selective);
    add(samples.full, s.full);
    add(samples.workspace, s.workspace);
    add(samples.workspace_selective, s.workspace_selective);
    add(samples.workspace_full, s.workspace_full);
  }
  MeasuredTimes times;
  for (const auto& [cut, s] : by_cut)
    times.by_cut_[cut] = {Curve(s.forward),
                          Curve(s.backward_input),
                          Curve(s.backward_weight),
                          Curve(s.selective),
                          Curve(s.full),
                          Curve(s.workspace),
                          Curve(s.workspace_selective),
                          Curve(s.workspace_full)};
  const double measured = total_flops(shape, *length), asked = total_flops(shape, shape.tokens);
  times.scale_ = measured > 0 ? asked / measured
                              : static_cast<double>(shape.tokens) / static_cast<double>(*length);
  return times;
}

MeasuredTimes::Nearest MeasuredTimes::nearest(const Strategy& s) const {
  const std::pair<const Cut, Curves>* best = nullptr;
  double closest = 0;
  for (const auto& entry : by_cut_) {
    const auto [kind, ways, context] = entry.first;
    const bool other_kind = ways > 1 && s.tp > 1 && kind != s.tp_kind;
    const double away = distance(ways, s.tp) + distance(context, s.cp) + (other_kind ? 0.5 : 0.0);
    if (best == nullptr || away < closest) best = &entry, closest = away;
  }
  const auto [kind, ways, context] = best->first;
  return {&best->second, static_cast<double>(ways * context) / (s.tp * s.cp)};
}

ComputeTimes MeasuredTimes::operator()(const Strategy& strategy, double samples) const {
  const auto [curves, share] = nearest(strategy);
  const double factor = share * scale_;
  return {.forward = factor * curves->forward(samples),
          .backward_input = factor * curves->backward_input(samples),
          .backward_weight = factor * curves->backward_weight(samples),
          .selective = factor * value_or_zero(curves->selective, samples),
          .full = factor * value_or_zero(curves->full, samples)};
}

std::optional<double> MeasuredTimes::workspace(const Strategy& strategy, double samples) const {
  const auto [curves, share] = nearest(strategy);
  const Curve& curve = strategy.recompute == Recompute::none        ? curves->workspace
                       : strategy.recompute == Recompute::selective ? curves->workspace_selective
                                                                    : curves->workspace_full;
  if (curve.empty()) return std::nullopt;
  return share * scale_ * curve(samples);
}

}  // namespace braid
