#include "planner/cost/analytic_layer.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace braid {
namespace {

// Norms, residuals, activations and what else passes through memory, in kernels of a layer.
constexpr double kSmallKernels = 12;

std::string squeezed(std::string_view name) {
  std::string text;
  for (const unsigned char c : name)
    if (std::isalnum(c) != 0) text += static_cast<char>(std::toupper(c));
  return text;
}

// A matrix of the layer as one device holds it.
struct Matrix {
  double outputs = 0, inputs = 0;
  double share = 1;  // of the tokens that pass through it
};

std::vector<Matrix> matrices_of(const LayerShape& l, int ways) {
  const double tensor = ways;
  const auto h = static_cast<double>(l.hidden);
  const auto ffn = static_cast<double>(l.ffn);
  std::vector<Matrix> all;
  switch (l.kind) {
    case LayerKind::embedding:
      if (l.patch_inputs > 0) all.push_back({h, static_cast<double>(l.patch_inputs)});
      break;
    case LayerKind::merge:
      all.push_back({static_cast<double>(l.merge_outputs), 4 * h, 0.25});
      break;
    case LayerKind::head:
      if (l.head_dense > 0) all.push_back({static_cast<double>(l.head_dense), h});
      all.push_back({static_cast<double>(l.vocab) / tensor,
                     static_cast<double>(l.head_dense > 0 ? l.head_dense : l.hidden),
                     l.pooled ? 1 / static_cast<double>(l.tokens) : 1.0});
      break;
    case LayerKind::block: {
      const auto q = static_cast<double>(l.heads * l.head_dim);
      const auto kv = static_cast<double>(kv_heads_of_group(l, ways) * l.head_dim);
      const double gates = is_gated(l.activation) ? 2 : 1;
      all.push_back({(q + 2 * kv) / tensor, h});
      all.push_back({h, q / tensor});
      if (l.cross_tokens > 0) {
        const double cross = static_cast<double>(l.cross_tokens) / static_cast<double>(l.tokens);
        all.push_back({q / tensor, h});
        all.push_back({2 * kv / tensor, h, cross});
        all.push_back({h, q / tensor});
      }
      const double active = l.experts > 0 ? static_cast<double>(l.experts_per_token) : 1.0;
      if (ffn > 0) {
        all.push_back({gates * ffn / tensor, h, active});
        all.push_back({h, ffn / tensor, active});
      }
      if (l.shared_ffn > 0) {
        const auto shared = static_cast<double>(l.shared_ffn);
        all.push_back({gates * shared / tensor, h});
        all.push_back({h, shared / tensor});
      }
      break;
    }
  }
  return all;
}

}  // namespace

DeviceModel device_model_of(const DeviceType& device, Precision precision) {
  DeviceModel model;
  const std::string name = squeezed(device.name);
  for (const DeviceModel& known : device_models())
    if (name.find(squeezed(known.name)) != std::string::npos) model = known;
  constexpr int kUsualProcessors = 108;
  if (model.processors == 0) model.processors = kUsualProcessors;
  model.peak = device.wide_peak(precision).value();
  model.peak_fp8 = device.peak(Precision::fp8).value();
  model.bandwidth = device.memory_bandwidth.value();
  model.memory = static_cast<double>(device.memory.value());
  return model;
}

AnalyticTimes analytic_layer(const DeviceModel& device, const LayerShape& shape, const Strategy& s,
                             double samples, Precision precision) {
  const bool cuts_matrices = s.tp_kind != TensorKind::ulysses;
  // The rows of a square share the tokens, its steps the inner dimension.
  const double tokens = samples * static_cast<double>(shape.tokens) / s.cp / s.square /
                        (cuts_matrices ? 1.0 : static_cast<double>(s.tp));
  AnalyticTimes t;
  const bool fp8 = precision == Precision::fp8 && shape.kind == LayerKind::block;
  for (const Matrix& m : matrices_of(shape, s.tensor_split())) {
    const double rows = tokens * m.share;
    t.forward += product_time(device, {rows, m.outputs, m.inputs}, fp8);
    t.backward_input += product_time(device, {rows, m.inputs, m.outputs}, fp8);
    t.backward_weight += product_time(device, {m.outputs, m.inputs, rows}, fp8);
  }
  const double split = static_cast<double>(s.tp) * s.cp;
  t.attention =
      samples / split * forward_flops(shape).attention.value() / (device.peak * device.flash);
  const double traffic =
      samples / split * static_cast<double>(forward_traffic(shape, precision).value());
  const double small = streaming_time(device, traffic) + kSmallKernels * device.kernel;
  t.forward += t.attention + small;
  // Flash attention's backward computes the scores anew: five products for the forward's two.
  t.backward_input += 2.5 * t.attention + 2 * small;
  return t;
}

}  // namespace braid
