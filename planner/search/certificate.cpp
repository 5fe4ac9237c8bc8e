#include "planner/search/certificate.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "planner/core/text.h"
#include "planner/cost/assumptions.h"

namespace braid {

Seconds PhysicsBound::total() const { return std::max({compute, states, crossing}); }

PhysicsBound physics_bound(const Model& model, const Cluster& cluster, std::int64_t global_batch,
                           Precision precision) {
  double peak = 0, memory_rate = 0, link_rate = 0;
  for (const NodeGroup& nodes : cluster.groups) {
    const DeviceType& device = cluster.device_types[static_cast<std::size_t>(nodes.device_type)];
    const double count = static_cast<double>(nodes.count) * nodes.devices;
    peak += count * device.peak(precision).value();
    memory_rate += count * device.memory_bandwidth.value();
    link_rate += count * std::max(nodes.inside.bandwidth, cluster.between.bandwidth).value();
  }
  const auto batch = static_cast<double>(global_batch);
  const double compute = training_flops(model).value() * batch / peak;
  const double states =
      static_cast<double>(parameters(model)) * Assumptions{}.optimizer_traffic / memory_rate;
  // A sample either stays on one device, which must then tell its gradients to another, or its
  // activation crosses once each way.
  double crossing = 0;
  if (cluster.num_devices() > 1) {
    double boundary = 0;
    for (const LayerType& type : model.types) {
      if (type.shape.kind == LayerKind::head) continue;
      const auto bytes = static_cast<double>(boundary_bytes(type.shape, precision).value());
      boundary = boundary == 0 ? bytes : std::min(boundary, bytes);
    }
    const auto gradients = static_cast<double>(parameters(model) * bytes_of(precision));
    crossing = std::min(2 * boundary * batch, gradients) / link_rate;
  }
  return {Seconds(compute), Seconds(states), Seconds(crossing)};
}

namespace {

struct Term {
  std::string_view name;
  double seconds;
};

// Seconds of an iteration on the busiest stage, by cause; the rest of the iteration is waiting.
std::array<Term, 9> terms_of(const Plan& plan) {
  const auto busy = [](const StagePrediction& s) {
    return (s.times.forward + s.times.backward_input + s.times.backward_weight).value();
  };
  const StagePrediction& s = *std::ranges::max_element(plan.prediction.stages, {}, busy);
  const LayerTime& t = s.terms;
  const double m = plan.shape.micro_batches;
  const double compute =
      m * (t.forward_compute + t.backward_input_compute + t.backward_weight_compute);
  std::array<Term, 9> terms = {{
      {"compute", compute},
      {"recomputation", m * t.recompute},
      {"tensor-parallel communication", m * (t.forward_tensor + t.backward_tensor)},
      {"ring attention's transfers", m * (t.forward_context + t.backward_context)},
      {"expert all-to-all", m * (t.forward_expert + t.backward_expert)},
      {"ZeRO gathers", m * (t.forward_gather + t.backward_gather)},
      {"redistribution between layers", m * s.redistribute},
      {"gradient reduction and update", t.once_reduce() + t.once_update()},
      {"pipeline bubble and transfers", 0},
  }};
  double sum = 0;
  for (const Term& term : terms) sum += term.seconds;
  terms.back().seconds = plan.prediction.iteration.value() - sum;
  return terms;
}

}  // namespace

std::string why_slower(const Plan& slower, const Plan& faster) {
  const auto a = terms_of(slower);
  const auto b = terms_of(faster);
  std::size_t worst = 0;
  for (std::size_t i = 1; i < a.size(); ++i)
    if (a[i].seconds - b[i].seconds > a[worst].seconds - b[worst].seconds) worst = i;
  return fmt::format("{} more for {}",
                     format_seconds(Seconds(std::max(0.0, a[worst].seconds - b[worst].seconds))),
                     a[worst].name);
}

}  // namespace braid
