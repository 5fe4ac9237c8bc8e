#include "planner/simulate/plan_collectives.h"

#include <algorithm>

#include "planner/cost/topology.h"

namespace braid {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Bytes that the collectives of a layer put on each device's port.
struct LayerTraffic {
  int chunk = 0;
  double before = 0, after = 0;  // the layer's place in a forward pass of its chunk, 0 to 1
  Reach reach = Reach::node;
  double gather = 0;    // weights under ZeRO-3, each way
  double scatter = 0;   // gradients, every backward
  double reduce = 0;    // gradients, the last backward
  double regather = 0;  // updated weights
};

class StageParts {
 public:
  StageParts(const Plan& plan, int stage)
      : plan_(plan),
        stage_(plan.stages[index(stage)]),
        topology_(plan.cluster),
        devices_(devices_of_stage(stage, plan.mesh())) {
    std::size_t place = 0;
    for (int chunk = 0; chunk < plan.shape.chunks; ++chunk) {
      const LayerRange range = stage_.chunks[index(chunk)];
      double whole = 0, done = 0;
      for (int layer = range.begin; layer < range.end; ++layer) whole += work_of(layer);
      for (int layer = range.begin; layer < range.end; ++layer, ++place) {
        LayerTraffic t = traffic_of(layer, stage_.strategies[place]);
        t.chunk = chunk;
        t.before = done / whole;
        done += work_of(layer);
        t.after = std::min(1.0, done / whole);
        layers_.push_back(t);
      }
    }
  }

  double sum(double LayerTraffic::*part) const {
    double all = 0;
    for (const LayerTraffic& t : layers_) all += t.*part;
    return all;
  }

  // In the order of a forward pass, each needed where its layer begins.
  std::vector<PassCollective> forward(double LayerTraffic::*part, double seconds_a_byte) const {
    std::vector<PassCollective> list;
    for (const LayerTraffic& t : layers_)
      if (t.*part > 0) list.push_back({t.chunk, t.before, message(t, t.*part, seconds_a_byte)});
    return list;
  }
  // In the order of a backward pass: needed where the layer begins, or ready where it ends.
  std::vector<PassCollective> backward(double LayerTraffic::*part, double seconds_a_byte,
                                       bool ready) const {
    std::vector<PassCollective> list;
    for (auto t = layers_.rbegin(); t != layers_.rend(); ++t)
      if ((*t).*part > 0)
        list.push_back({t->chunk, ready ? 1 - t->before : 1 - t->after,
                        message(*t, (*t).*part, seconds_a_byte)});
    return list;
  }
  std::vector<Message> behind_update(double seconds_a_byte) const {
    std::vector<Message> list;
    for (const LayerTraffic& t : layers_)
      if (t.regather > 0) list.push_back(message(t, t.regather, seconds_a_byte));
    return list;
  }

 private:
  // A model that came with a profile may have no shapes.
  double work_of(int layer) const {
    return std::max(1.0, forward_flops(plan_.model.type_of(layer).shape).total().value());
  }

  static Message message(const LayerTraffic& t, double bytes, double seconds_a_byte) {
    return {.moving = Seconds(bytes * seconds_a_byte),
            .bytes = Bytes(static_cast<std::int64_t>(bytes)),
            .reach = t.reach};
  }

  LayerTraffic traffic_of(int layer, const Strategy& s) const {
    const GroupShape group = replica_group(plan_.mesh(), s);
    LayerTraffic t;
    if (group.size <= 1) return t;
    bool across = false;
    double ports = 1;  // through which the slowest group enters a node
    for (const GroupPlacement& placement : topology_.placements(group, devices_)) {
      if (!placement.crosses()) continue;
      ports = across ? std::min(ports, 1.0 * placement.fewest) : placement.fewest;
      across = true;
    }
    t.reach = across ? Reach::network : Reach::node;
    const auto elements = static_cast<double>(parameters_per_rank(
        plan_.model.type_of(layer).shape, s.tensor_split(), s.ep, s.hidden_split()));
    const double ring = (group.size - 1.0) / group.size * std::max(1.0, elements) / ports;
    const double weights = ring * static_cast<double>(bytes_of(plan_.precision));
    const double gradients = ring * static_cast<double>(bytes_of(plan_.gradient_precision));
    const bool shards_gradients = s.zero == Zero::gradients || s.zero == Zero::parameters;
    const bool at_once = shards_gradients && plan_.shape.micro_batches > 1;
    if (s.zero == Zero::parameters) t.gather = weights;
    if (at_once) t.scatter = gradients;
    if (!at_once) t.reduce = s.zero == Zero::none ? 2 * gradients : gradients;
    if (s.zero == Zero::optimizer || s.zero == Zero::gradients) t.regather = weights;
    return t;
  }

  const Plan& plan_;
  const StagePlan& stage_;
  Topology topology_;
  DeviceSpan devices_;
  std::vector<LayerTraffic> layers_;  // in the order of the chunks
};

Message transfer_of(const Plan& plan, int stage, Seconds seconds) {
  const Mesh mesh = plan.mesh();
  const int last = plan.stages[index(stage)].chunks.back().end - 1;
  const std::vector<Hop> hops =
      Topology(plan.cluster)
          .transfer_hops(devices_of_stage(stage, mesh), devices_of_stage(stage + 1, mesh));
  const auto slowest = std::ranges::max_element(hops, {}, &Hop::crosses);
  const Bytes whole = boundary_bytes(plan.model.type_of(last).shape, plan.precision);
  const Seconds latency = std::min(Seconds(slowest->latency), seconds);
  return {.latency = latency,
          .moving = seconds - latency,
          .bytes = Bytes(whole.value() * plan.micro_batch() / mesh.stage_devices()),
          .reach = slowest->crosses ? Reach::network : Reach::node};
}

}  // namespace

StageStreams take_apart(const Plan& plan, int stage, StageTimes& times) {
  const StageParts parts(plan, stage);
  const LayerTime& t = plan.prediction.stages[index(stage)].terms;
  StageStreams streams;
  if (stage + 1 < plan.shape.stages) streams.transfer = transfer_of(plan, stage, times.transfer);

  const double gathered = 2 * parts.sum(&LayerTraffic::gather) + parts.sum(&LayerTraffic::scatter);
  const double gathers = t.forward_gather + t.backward_gather + t.hidden_gather;
  if (gathered > 0 && gathers > 0) {
    const double each = gathers / gathered;
    streams.forward_gathers = parts.forward(&LayerTraffic::gather, each);
    streams.backward_gathers = parts.backward(&LayerTraffic::gather, each, false);
    streams.scatters = parts.backward(&LayerTraffic::scatter, each, true);
    times.forward = std::max(Seconds(), times.forward - Seconds(t.forward_gather));
    times.backward_input = std::max(Seconds(), times.backward_input - Seconds(t.backward_gather));
  }
  const double reduced = parts.sum(&LayerTraffic::reduce);
  const double sums = t.reduce + t.hidden_reduce;
  if (reduced > 0 && sums > 0) {
    streams.reductions = parts.backward(&LayerTraffic::reduce, sums / reduced, true);
    times.reduce = Seconds();
  }
  const double regathered = parts.sum(&LayerTraffic::regather);
  if (regathered > 0 && t.regather > 0) {
    streams.regathers = parts.behind_update(t.regather / regathered);
    times.update = std::max(Seconds(), times.update - Seconds(t.regather));
  }
  return streams;
}

}  // namespace braid
