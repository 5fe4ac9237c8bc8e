#include "planner/simulate/plan_events.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "planner/core/error.h"
#include "planner/cost/assumptions.h"
#include "planner/simulate/plan_collectives.h"
#include "planner/simulate/price_plan.h"

namespace braid {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// The place of a device inside its stage.
int local_of(int device, const Mesh& mesh) {
  return mesh.order == MeshOrder::dp_cp_tp_pp ? device / mesh.stages
                                              : device % mesh.stage_devices();
}

// Compute takes longer; what the pass communicates does not.
double stretched(double factor, double compute, Seconds whole) {
  if (whole <= Seconds()) return 1;
  const double share = std::clamp(compute / whole.value(), 0.0, 1.0);
  return 1 + (factor - 1) * share;
}

Pace pace_of(double factor, const LayerTime& t, const StageTimes& played) {
  return {.forward = stretched(factor, t.forward_compute, played.forward),
          .backward_input =
              stretched(factor, t.backward_input_compute + t.recompute, played.backward_input),
          .backward_weight = stretched(factor, t.backward_weight_compute, played.backward_weight),
          .update = stretched(factor, t.update, played.update)};
}

// Pipelines with the same slow ranks.
struct EqualPipelines {
  std::vector<double> factors;  // by stage
  std::vector<int> members;     // ascending
};

// FLOPs of each device.
std::vector<double> peaks_of(const Plan& plan) {
  std::vector<double> peaks;
  for (const NodeGroup& nodes : plan.cluster.groups)
    peaks.insert(peaks.end(), index(nodes.count * nodes.devices),
                 plan.cluster.device_types[index(nodes.device_type)].peak(plan.precision).value());
  return peaks;
}

// By device, how much longer it takes than its stage was priced at.
std::vector<double> device_factors(const Plan& plan, const EventOptions& options) {
  const Mesh mesh = plan.mesh();
  std::vector<double> factors(index(mesh.devices), 1.0);
  if (options.device_types) {
    const std::vector<double> peaks = peaks_of(plan);
    std::vector<double> slowest(index(mesh.stages), std::numeric_limits<double>::infinity());
    for (int device = 0; device < mesh.devices; ++device) {
      double& peak = slowest[index(stage_of(device, mesh))];
      peak = std::min(peak, peaks[index(device)]);
    }
    for (int device = 0; device < mesh.devices; ++device)
      factors[index(device)] = slowest[index(stage_of(device, mesh))] / peaks[index(device)];
  }
  for (const Straggler& s : options.stragglers) {
    internal_check(s.rank >= 0 && s.rank < mesh.devices, "a straggler is one of the ranks");
    factors[index(s.rank)] *= s.factor;
  }
  return factors;
}

std::vector<EqualPipelines> equal_pipelines(const Plan& plan, const Pipelines& pipelines,
                                            const EventOptions& options) {
  const Mesh mesh = plan.mesh();
  const std::vector<double> factors = device_factors(plan, options);
  // Ranks of one pipeline wait for the slowest of them.
  std::vector<std::vector<double>> slowest(index(pipelines.count),
                                           std::vector<double>(index(mesh.stages), 0.0));
  for (int device = 0; device < mesh.devices; ++device) {
    auto& stages = slowest[index(pipelines.of_device[index(device)])];
    double& factor = stages[index(stage_of(device, mesh))];
    factor = std::max(factor, factors[index(device)]);
  }
  std::map<std::vector<double>, EqualPipelines> classes;
  for (int pipeline = 0; pipeline < pipelines.count; ++pipeline) {
    EqualPipelines& equal = classes[slowest[index(pipeline)]];
    equal.factors = slowest[index(pipeline)];
    equal.members.push_back(pipeline);
  }
  std::vector<EqualPipelines> list;
  list.reserve(classes.size());
  for (auto& [key, equal] : classes) list.push_back(std::move(equal));
  return list;
}

// A port for every class and stage. Devices have links of their own inside a node; network cards
// may be fewer than devices.
class PortMap {
 public:
  PortMap(const Plan& plan, const Pipelines& pipelines, int cards)
      : plan_(plan), pipelines_(pipelines), width_(plan.cluster.node_width()), cards_(cards) {}

  void add(int stage, const EqualPipelines& equal) {
    DevicePorts ports;
    ports.node_out = {own(Reach::node)};
    ports.node_in = {own(Reach::node)};
    if (cards_ <= 0 || cards_ >= width_) {
      ports.network_out = {own(Reach::network)};
      ports.network_in = {own(Reach::network)};
    } else {
      // Where most of the class's ranks meet at one card.
      const std::map<Card, int> ranks = ranks_by_card(stage, equal);
      const auto busiest =
          std::ranges::max_element(ranks, {}, [](const auto& entry) { return entry.second; });
      const auto [out, in] = links_of(busiest->first);
      ports.network_out = {out, static_cast<double>(busiest->second)};
      ports.network_in = {in, static_cast<double>(busiest->second)};
    }
    links_.ports.push_back(ports);
  }

  // A message that has its links to itself must not wait for them, whatever a profile measured.
  Links finish(const std::vector<StageStreams>& streams) {
    const double efficiency = Assumptions{}.link_efficiency;
    double inside = 0;
    for (const NodeGroup& nodes : plan_.cluster.groups)
      inside = std::max(inside, nodes.inside.bandwidth.value() * efficiency);
    double between = plan_.cluster.between.bandwidth.value() * efficiency;
    for_each_message(streams, [&](const Message& m) {
      if (m.moving <= Seconds()) return;
      double& speed = m.reach == Reach::node ? inside : between;
      speed = std::max(speed, static_cast<double>(m.bytes.value()) / m.moving.value());
    });
    for (const Reach reach : reaches_)
      links_.capacities.emplace_back(reach == Reach::node ? inside : between);
    return std::move(links_);
  }

 private:
  using Card = std::pair<int, int>;  // node, and which of its cards

  std::map<Card, int> ranks_by_card(int stage, const EqualPipelines& equal) const {
    const Mesh mesh = plan_.mesh();
    std::map<Card, int> ranks;
    for (int device = 0; device < mesh.devices; ++device)
      if (stage_of(device, mesh) == stage &&
          std::ranges::binary_search(equal.members, pipelines_.of_device[index(device)]))
        ++ranks[{device / width_, device % width_ * cards_ / width_}];
    return ranks;
  }
  int own(Reach reach) {
    reaches_.push_back(reach);
    return static_cast<int>(reaches_.size()) - 1;
  }
  std::pair<int, int> links_of(Card card) {
    const auto found = of_card_.find(card);
    if (found != of_card_.end()) return found->second;
    const int out = own(Reach::network), in = own(Reach::network);
    return of_card_[card] = {out, in};
  }

  const Plan& plan_;
  const Pipelines& pipelines_;
  int width_, cards_;
  Links links_;
  std::vector<Reach> reaches_;                   // by link
  std::map<Card, std::pair<int, int>> of_card_;  // out and in
};

}  // namespace

std::vector<Straggler> spread_stragglers(double share, double factor, int devices) {
  const int count = std::clamp(static_cast<int>(std::lround(share * devices)), 1, devices);
  std::vector<Straggler> list;
  list.reserve(index(count));
  for (int i = 0; i < count; ++i)
    list.push_back({static_cast<int>(static_cast<std::int64_t>(i) * devices / count), factor});
  return list;
}

Pipelines independent_pipelines(const Plan& plan) {
  const Mesh mesh = plan.mesh();
  int count = 0, widest = 1;
  bool one_width = true;
  for (const StagePlan& stage : plan.stages) {
    for (const Strategy& s : stage.strategies) {
      count = std::gcd(count, std::max(1, s.dp / s.ep));
      one_width = one_width && (widest == 1 || widest == s.dp);
      widest = std::max(widest, s.dp);
    }
  }
  const bool data_is_inner = mesh.order == MeshOrder::pp_tp_cp_dp;
  if (data_is_inner && !one_width) count = 1;  // samples change places through the whole stage
  Pipelines pipelines{.count = std::max(1, count), .of_device = {}};
  pipelines.of_device.reserve(index(mesh.devices));
  for (int device = 0; device < mesh.devices; ++device) {
    const int local = local_of(device, mesh);
    const int together = (data_is_inner ? widest : mesh.stage_devices()) / pipelines.count;
    pipelines.of_device.push_back((data_is_inner ? local % widest : local) / std::max(1, together));
  }
  return pipelines;
}

EventInput event_input(const Plan& plan, const EventOptions& options) {
  internal_check(std::ssize(plan.prediction.stages) == plan.shape.stages,
                 "events of a plan that is priced");
  EventInput input{.shape = plan.shape, .times = stage_times(plan.prediction)};
  if (options.contention) {
    for (int stage = 0; stage < plan.shape.stages; ++stage)
      input.streams.push_back(take_apart(plan, stage, input.times[index(stage)]));
    input.transfer_overlap = input.collective_overlap = options.overlap;
  }
  const Pipelines pipelines = independent_pipelines(plan);
  PortMap ports(plan, pipelines, options.network_cards);
  for (const EqualPipelines& equal : equal_pipelines(plan, pipelines, options)) {
    ReplicaClass replicas{.pipelines = static_cast<int>(equal.members.size()), .paces = {}};
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      replicas.paces.push_back(pace_of(equal.factors[index(stage)],
                                       plan.prediction.stages[index(stage)].terms,
                                       input.times[index(stage)]));
      if (options.contention) ports.add(stage, equal);
    }
    input.replicas.push_back(std::move(replicas));
  }
  if (options.contention) input.links = ports.finish(input.streams);
  return input;
}

}  // namespace braid
