#include "planner/simulate/event_simulator.h"

#include <algorithm>
#include <utility>

#include "planner/core/error.h"
#include "planner/simulate/device_program.h"
#include "planner/simulate/stream_clock.h"
#include "planner/simulate/traffic.h"

namespace braid {
namespace {

constexpr int kNone = -1;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

std::vector<double> capacities(const Links& links) {
  std::vector<double> list;
  list.reserve(links.capacities.size());
  for (const BytesPerSecond capacity : links.capacities) list.push_back(capacity.value());
  return list;
}

bool is_send(OpKind kind) {
  return kind == OpKind::send_activation || kind == OpKind::send_gradient;
}

struct Device {
  int stage = 0, replicas = 0;  // its class
  std::size_t next = 0;         // operation of its list
  std::size_t step = 0;         // of that operation
  bool entered = false;         // the operation has begun
  double began = 0;
  bool waiting = false;
  double waits_since = 0;
  StepSeconds computing;  // under way
  double computes_since = 0;
  std::vector<int> slots;  // the latest collective of each
  StageUse use;
  DeviceUse detail;
  std::vector<SimulationEvent> events;
};

class EventPlayer {
 public:
  EventPlayer(const Schedule& schedule, const EventInput& input, const SimulationOptions& options)
      : schedule_(schedule),
        input_(input),
        options_(options),
        stages_(input.shape.stages),
        classes_(std::max(1, static_cast<int>(input.replicas.size()))),
        clock_(stages_ * classes_, {input.transfer_overlap, input.collective_overlap},
               capacities(input.links)),
        traffic_(input, clock_),
        devices_(index(stages_ * classes_)) {
    programs_.reserve(index(stages_));
    for (int stage = 0; stage < stages_; ++stage)
      programs_.emplace_back(input_, schedule_[index(stage)], stage);
    for (int id = 0; id < stages_ * classes_; ++id) {
      Device& device = devices_[index(id)];
      device.stage = id % stages_;
      device.replicas = id / stages_;
      device.slots.assign(index(programs_[index(device.stage)].num_slots()), kNone);
      routes_.push_back({.devices = {id}, .links = {}});
    }
    const auto units =
        index(num_virtual_stages(input.shape)) * index(input.shape.micro_batches) * index(classes_);
    activations_.assign(units, kNone);
    gradients_.assign(units, kNone);
  }

  EventSimulation play() {
    for (int id = 0; id < std::ssize(devices_); ++id) run(id);
    while (const auto work = clock_.next()) finish(*work);
    for (const Device& device : devices_)
      internal_check(device.next == schedule_[index(device.stage)].size(),
                     "a schedule that verify_schedule rejects was played");
    return collect();
  }

 private:
  // Runs a device until it computes, waits, or is done.
  void run(int id) {
    Device& device = devices_[index(id)];
    const OpList& list = schedule_[index(device.stage)];
    for (; device.next < list.size(); ++device.next) {
      const Op& op = list[device.next];
      if (!device.entered) device.began = clock_.now();
      device.entered = true;
      if (!through(id, op)) return;
      if (options_.events && !is_send(op.kind))
        device.events.push_back({device.stage, op, Seconds(device.began), Seconds(clock_.now())});
      device.entered = false;
      device.step = 0;
    }
  }

  bool through(int id, const Op& op) {
    switch (op.kind) {
      case OpKind::send_activation:
        send(id, op, activations_, +1);
        return true;
      case OpKind::send_gradient:
        send(id, op, gradients_, -1);
        return true;
      case OpKind::receive_activation:
        return receive(id, op, activations_);
      case OpKind::receive_gradient:
        return receive(id, op, gradients_);
      case OpKind::forward:
      case OpKind::backward:
      case OpKind::backward_input:
      case OpKind::backward_weight:
      case OpKind::reduce:
      case OpKind::update:
        if (!steps_through(id)) return false;
        count(devices_[index(id)], op.kind);
        return true;
    }
    internal_failure("unknown operation", std::source_location::current());
  }

  bool steps_through(int id) {
    Device& device = devices_[index(id)];
    const Steps& steps = programs_[index(device.stage)].steps(device.next);
    for (; device.step < steps.size(); ++device.step) {
      const Step& step = steps[device.step];
      switch (step.kind) {
        case Step::Kind::compute:
          if (compute(id, step)) return false;  // its end moves the step on
          break;
        case Step::Kind::post: {
          const Op& op = schedule_[index(device.stage)][device.next];
          device.slots[index(step.slot)] = traffic_.post(
              id, *step.message, step.comm, op.kind == OpKind::update ? kNone : op.micro_batch);
          break;
        }
        case Step::Kind::await:
          if (!await(device, step)) return false;
          break;
        case Step::Kind::barrier:
          if (!meet(id)) return false;
          break;
      }
    }
    return true;
  }

  // Whether there is anything to compute.
  bool compute(int id, const Step& step) {
    Device& device = devices_[index(id)];
    const Pace pace = pace_of(device);
    StepSeconds& s = device.computing;
    s = step.seconds;
    s.forward *= pace.forward;
    s.backward_input *= pace.backward_input;
    s.backward_weight *= pace.backward_weight;
    s.update *= pace.update;
    if (s.total() <= 0) return false;
    device.computes_since = clock_.now();
    const int work = clock_.start(
        {.kind = WorkKind::compute, .route = &routes_[index(id)], .seconds = s.total()});
    if (index(work) >= device_of_work_.size()) device_of_work_.resize(index(work) + 1, kNone);
    device_of_work_[index(work)] = id;
    return true;
  }

  Pace pace_of(const Device& device) const {
    if (input_.replicas.empty()) return {};
    const std::vector<Pace>& paces = input_.replicas[index(device.replicas)].paces;
    return paces.empty() ? Pace{} : paces[index(device.stage)];
  }

  void wait(Device& device) {
    if (!device.waiting) device.waits_since = clock_.now();
    device.waiting = true;
  }

  bool await(Device& device, const Step& step) {
    const int id = device.slots[index(step.slot)];
    internal_check(id != kNone, "a collective is asked for before it is waited for");
    const Traffic::Flight& flight = traffic_.flight(id);
    if (!flight.ended) {
      wait(device);
      return false;
    }
    if (std::exchange(device.waiting, false)) {
      // Before all had asked for it the device waited for its replicas, then for the network.
      const double asked = std::max(device.waits_since, flight.posted);
      device.detail.replicas += Seconds(asked - device.waits_since);
      Seconds& exposed =
          step.comm == CommKind::gather ? device.detail.gather : device.detail.reduce;
      exposed += Seconds(clock_.now() - asked);
    }
    return true;
  }

  // Ahead of the update: the norm needs the gradients of all.
  bool meet(int id) {
    if (released_) return true;
    if (++met_ < std::ssize(devices_)) return false;
    released_ = true;
    for (Device& device : devices_) device.began = clock_.now();
    for (int other = 0; other < std::ssize(devices_); ++other)
      if (other != id) run(other);
    return true;
  }

  std::size_t slot(const Device& device, int virtual_stage, int micro_batch) const {
    const int unit = device.replicas * num_virtual_stages(input_.shape) + virtual_stage;
    return index(unit) * index(input_.shape.micro_batches) + index(micro_batch);
  }

  void send(int id, const Op& op, std::vector<int>& sent, int direction) {
    Device& device = devices_[index(id)];
    const int to = virtual_stage(input_.shape, device.stage, op.chunk) + direction;
    const int flight = traffic_.send(id, direction, op.micro_batch);
    sent[slot(device, to, op.micro_batch)] = flight;
    if (!options_.events) return;
    if (index(flight) >= send_events_.size()) send_events_.resize(index(flight) + 1, 0);
    send_events_[index(flight)] = device.events.size();
    device.events.push_back({device.stage, op, Seconds(clock_.now()), Seconds(clock_.now())});
  }

  bool receive(int id, const Op& op, const std::vector<int>& sent) {
    Device& device = devices_[index(id)];
    const int here = virtual_stage(input_.shape, device.stage, op.chunk);
    const int flight = sent[slot(device, here, op.micro_batch)];
    if (flight == kNone || !traffic_.flight(flight).ended) {
      wait(device);
      return false;
    }
    if (std::exchange(device.waiting, false)) {
      const double left = std::max(device.waits_since, traffic_.flight(flight).posted);
      device.detail.transfer += Seconds(clock_.now() - left);
    }
    return true;
  }

  void finish(int work) {
    if (index(work) < device_of_work_.size() && device_of_work_[index(work)] != kNone) {
      const int id = std::exchange(device_of_work_[index(work)], kNone);
      end_compute(devices_[index(id)]);
      ++devices_[index(id)].step;
      run(id);
      return;
    }
    const int id = traffic_.end(work);
    internal_check(id != kNone, "all work is compute or communication");
    const Traffic::Flight flight = traffic_.flight(id);  // whom it wakes may send, and move it
    if (flight.direction == 0) {
      if (options_.events)
        collectives_.push_back({flight.device, flight.kind, flight.micro_batch,
                                Seconds(flight.started), Seconds(clock_.now())});
      for (int other = flight.device; other < std::ssize(devices_); other += stages_) wake(other);
      return;
    }
    const int from = flight.device, to = traffic_.neighbour(from, flight.direction);
    if (options_.events)
      devices_[index(from)].events[send_events_[index(id)]].end = Seconds(clock_.now());
    wake(to);
  }

  void wake(int id) {
    if (devices_[index(id)].waiting) run(id);
  }

  void end_compute(Device& device) {
    const StepSeconds& s = device.computing;
    const double stretch = (clock_.now() - device.computes_since) / s.total();
    DeviceUse& d = device.detail;
    d.forward += Seconds(s.forward * stretch);
    d.backward_input += Seconds(s.backward_input * stretch);
    d.backward_weight += Seconds(s.backward_weight * stretch);
    d.reduce += Seconds(s.reduce * stretch);
    d.update += Seconds(s.update * stretch);
  }

  // An operation in the quick simulator's terms.
  void count(Device& device, OpKind kind) const {
    const Seconds took(clock_.now() - device.began);
    StageUse& use = device.use;
    if (kind == OpKind::forward) use.forward += took;
    if (kind == OpKind::backward_input) use.backward_input += took;
    if (kind == OpKind::backward_weight) use.backward_weight += took;
    if (kind == OpKind::reduce) use.reduce += took;
    if (kind == OpKind::update) use.update += took;
    if (kind != OpKind::backward) return;
    const StageTimes& times = input_.times[index(device.stage)];
    const Seconds whole = times.backward_input + times.backward_weight;
    const double share = whole > Seconds() ? times.backward_input / whole : 1;
    use.backward_input += share * took;
    use.backward_weight += took - share * took;
  }

  EventSimulation collect() {
    EventSimulation result;
    result.iteration = Seconds(clock_.now());
    result.classes.resize(index(classes_));
    for (Simulation& s : result.classes) s.iteration = result.iteration;
    for (int id = 0; id < std::ssize(devices_); ++id) {
      Device& device = devices_[index(id)];
      device.use.bubble = result.iteration - device.use.busy();
      Simulation& simulation = result.classes[index(device.replicas)];
      simulation.stages.push_back(device.use);
      simulation.events.insert(simulation.events.end(), device.events.begin(), device.events.end());
      DeviceUse& d = device.detail;
      d.bubble = result.iteration - d.total();
      const Delays& delays = clock_.delays(id);
      d.slowed_compute = Seconds(delays.compute);
      d.slowed_communication = Seconds(delays.communication);
      d.waited_for_links = Seconds(delays.links + traffic_.queued(id));
      result.devices.push_back(d);
    }
    result.collectives = std::move(collectives_);
    return result;
  }

  const Schedule& schedule_;
  const EventInput& input_;
  SimulationOptions options_;
  int stages_, classes_;
  StreamClock clock_;
  Traffic traffic_;
  std::vector<DeviceProgram> programs_;  // by stage
  std::vector<Device> devices_;          // by class, then stage
  std::vector<Route> routes_;            // of a device's compute
  std::vector<int> device_of_work_;
  // By class, virtual stage and micro-batch: the flight that brings it.
  std::vector<int> activations_, gradients_;
  std::vector<std::size_t> send_events_;  // by flight: its place among the sender's events
  std::vector<CollectiveEvent> collectives_;
  std::ptrdiff_t met_ = 0;
  bool released_ = false;
};

}  // namespace

Message message_of(Bytes size, const Curve& seconds, Reach reach) {
  const double latency = seconds(0);
  const double whole = seconds(static_cast<double>(size.value()));
  return {.latency = Seconds(latency),
          .moving = Seconds(whole - latency),
          .bytes = size,
          .reach = reach};
}

EventSimulation simulate_events(const EventInput& input, const SimulationOptions& options) {
  return simulate_events(make_schedule(input.shape), input, options);
}

EventSimulation simulate_events(const Schedule& schedule, const EventInput& input,
                                const SimulationOptions& options) {
  const auto stages = index(input.shape.stages);
  internal_check(input.times.size() == stages && schedule.size() == stages &&
                     (input.streams.empty() || input.streams.size() == stages),
                 "as many lists, times and streams as stages");
  for (const ReplicaClass& replicas : input.replicas)
    internal_check(replicas.paces.empty() || replicas.paces.size() == stages,
                   "as many paces as stages");
  internal_check(
      input.links.capacities.empty() ||
          input.links.ports.size() == stages * std::max<std::size_t>(1, input.replicas.size()),
      "ports for every device");
  return EventPlayer(schedule, input, options).play();
}

}  // namespace braid
