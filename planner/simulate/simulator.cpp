#include "planner/simulate/simulator.h"

#include <algorithm>
#include <utility>

#include "planner/core/error.h"

namespace braid {
namespace {

constexpr double kNotSent = -1;

// One iteration in flight. Stages run one after the other, each as far as its inputs allow; a send
// wakes the stage that waits for it, so every operation is looked at a bounded number of times.
class Player {
 public:
  Player(const Schedule& schedule, const PipelineShape& shape, std::span<const StageTimes> times,
         const SimulationOptions& options)
      : schedule_(schedule),
        shape_(shape),
        times_(times),
        options_(options),
        stages_(schedule.size()),
        use_(schedule.size()) {
    const auto units = static_cast<std::size_t>(num_virtual_stages(shape)) *
                       static_cast<std::size_t>(shape.micro_batches);
    activation_arrival_.assign(units, kNotSent);
    gradient_arrival_.assign(units, kNotSent);
    for (int stage = 0; stage + 1 < shape.stages; ++stage) {
      slowest_transfer_ = std::max(slowest_transfer_, time_of(stage).transfer.value());
    }
  }

  Simulation play() {
    for (int stage = shape_.stages - 1; stage >= 0; --stage) awake_.push_back(stage);
    while (!awake_.empty()) {
      const int stage = awake_.back();
      awake_.pop_back();
      run(stage);
    }
    double all_reduced = 0;
    for (const Stage& stage : stages_) all_reduced = std::max(all_reduced, stage.now);
    double end = 0;
    for (int stage = 0; stage < shape_.stages; ++stage) {
      end = std::max(end, finish(stage, all_reduced));
    }
    for (StageUse& use : use_) use.bubble = Seconds(end) - use.busy();
    return {Seconds(end), std::move(use_), collect_events()};
  }

 private:
  struct Stage {
    std::size_t next = 0;  // operation of its list
    double now = 0;
    std::vector<SimulationEvent> events;
  };

  Stage& at(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
  const StageTimes& time_of(int stage) const { return times_[static_cast<std::size_t>(stage)]; }
  StageUse& use_of(int stage) { return use_[static_cast<std::size_t>(stage)]; }
  const OpList& list_of(int stage) const { return schedule_[static_cast<std::size_t>(stage)]; }

  std::size_t slot(int virtual_stage, int micro_batch) const {
    return static_cast<std::size_t>(virtual_stage) *
               static_cast<std::size_t>(shape_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  // Runs a stage up to its update, or until an input is missing.
  void run(int index) {
    Stage& stage = at(index);
    const OpList& list = list_of(index);
    for (; stage.next < list.size(); ++stage.next) {
      const Op& op = list[stage.next];
      const double start = stage.now;
      double end = start;
      switch (op.kind) {
        case OpKind::forward:
        case OpKind::backward:
        case OpKind::backward_input:
        case OpKind::backward_weight:
        case OpKind::reduce:
          end = stage.now = start + compute(index, op.kind);
          break;
        case OpKind::send_activation:
          end = send(activation_arrival_, index, op, +1);
          break;
        case OpKind::send_gradient:
          end = send(gradient_arrival_, index, op, -1);
          break;
        case OpKind::receive_activation:
        case OpKind::receive_gradient: {
          const double arrival = arrival_of(index, op);
          if (arrival == kNotSent) return;
          end = stage.now = std::max(start, arrival);
          break;
        }
        case OpKind::update:
          return;
      }
      record(index, op, start, end);
    }
  }

  // Seconds an operation takes, also added to what its stage did.
  double compute(int index, OpKind kind) {
    const StageTimes& time = time_of(index);
    StageUse& use = use_of(index);
    const double share = 1.0 / shape_.chunks;
    double total = 0;
    const auto spend = [&total](Seconds& counter, Seconds seconds) {
      counter += seconds;
      total += seconds.value();
    };
    if (kind == OpKind::forward) spend(use.forward, time.forward * share);
    if (kind == OpKind::backward || kind == OpKind::backward_input) {
      spend(use.backward_input, time.backward_input * share);
    }
    if (kind == OpKind::backward || kind == OpKind::backward_weight) {
      spend(use.backward_weight, time.backward_weight * share);
    }
    if (kind == OpKind::reduce) spend(use.reduce, time.reduce);
    return total;
  }

  double arrival_of(int index, const Op& op) const {
    const auto& arrivals =
        op.kind == OpKind::receive_activation ? activation_arrival_ : gradient_arrival_;
    return arrivals[slot(virtual_stage(shape_, index, op.chunk), op.micro_batch)];
  }

  // Towards the next (+1) or the previous (-1) virtual stage. Neighbours share boundary min(a, b);
  // first and last stage, neighbours only between chunks, are taken to be as far as the farthest.
  double send(std::vector<double>& arrivals, int index, const Op& op, int direction) {
    const int to_virtual = virtual_stage(shape_, index, op.chunk) + direction;
    const int to = to_virtual % shape_.stages;
    const bool neighbours = to == index + direction;
    const double transfer =
        neighbours ? time_of(std::min(index, to)).transfer.value() : slowest_transfer_;
    const double arrival = at(index).now + transfer;
    arrivals[slot(to_virtual, op.micro_batch)] = arrival;
    awake_.push_back(to);
    return arrival;
  }

  double finish(int index, double all_reduced) {
    Stage& stage = at(index);
    const OpList& list = list_of(index);
    internal_check(stage.next + 1 == list.size() && list.back().kind == OpKind::update,
                   "a schedule that verify_schedule rejects was played");
    const Seconds update = time_of(index).update;
    use_of(index).update += update;
    const double end = all_reduced + update.value();
    record(index, list.back(), all_reduced, end);
    return end;
  }

  void record(int index, const Op& op, double start, double end) {
    if (options_.events) at(index).events.push_back({index, op, Seconds(start), Seconds(end)});
  }
  std::vector<SimulationEvent> collect_events() {
    std::vector<SimulationEvent> events;
    for (const Stage& stage : stages_) {
      events.insert(events.end(), stage.events.begin(), stage.events.end());
    }
    return events;
  }

  const Schedule& schedule_;
  PipelineShape shape_;
  std::span<const StageTimes> times_;
  SimulationOptions options_;
  std::vector<Stage> stages_;
  std::vector<StageUse> use_;
  std::vector<int> awake_;
  // By virtual stage and micro-batch.
  std::vector<double> activation_arrival_, gradient_arrival_;
  double slowest_transfer_ = 0;
};

}  // namespace

Simulation simulate(const PipelineShape& shape, std::span<const StageTimes> stages,
                    const SimulationOptions& options) {
  return simulate(make_schedule(shape), shape, stages, options);
}

Simulation simulate(const Schedule& schedule, const PipelineShape& shape,
                    std::span<const StageTimes> stages, const SimulationOptions& options) {
  internal_check(static_cast<int>(stages.size()) == shape.stages &&
                     static_cast<int>(schedule.size()) == shape.stages,
                 "as many lists and times as stages");
  return Player(schedule, shape, stages, options).play();
}

}  // namespace braid
