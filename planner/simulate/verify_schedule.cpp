#include "planner/simulate/verify_schedule.h"

#include <fmt/format.h>

#include <array>
#include <deque>
#include <vector>

namespace braid {
namespace {

std::string describe(const Op& op) {
  if (op.kind == OpKind::reduce || op.kind == OpKind::update) return name_of(op.kind);
  return fmt::format("{} of chunk {}, micro-batch {}", name_of(op.kind), op.chunk, op.micro_batch);
}

// Checks one list by itself: what has run so far decides what may run next.
class ListChecker {
 public:
  ListChecker(const PipelineShape& shape, int stage)
      : shape_(shape),
        stage_(stage),
        done_(static_cast<std::size_t>(shape.chunks) *
              static_cast<std::size_t>(shape.micro_batches)) {}

  std::optional<ScheduleFault> check(const OpList& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (auto what = reject(list[i])) return ScheduleFault{*what, stage_, i};
      mark(list[i]);
    }
    if (!updated_) return ScheduleFault{"the list ends without an update", stage_, list.size()};
    return std::nullopt;
  }

 private:
  std::optional<std::string> reject(const Op& op) const {
    if (op.chunk < 0 || op.chunk >= shape_.chunks || op.micro_batch < 0 ||
        op.micro_batch >= shape_.micro_batches) {
      return describe(op) + " does not exist in this shape";
    }
    if (updated_) return describe(op) + " comes after the update";
    if (op.kind == OpKind::update) {
      return reduced_ ? std::nullopt : std::optional<std::string>("update comes before reduce");
    }
    if (reduced_) return describe(op) + " comes after reduce";
    if (op.kind == OpKind::reduce) return reject_reduce();
    if (ran(op.kind, op)) return describe(op) + " runs twice";
    if (!is_part_of_shape(op)) return describe(op) + " has no stage at its other end";
    if (auto needed = missing_before(op)) {
      return fmt::format("{} runs before its {}", describe(op), describe(*needed));
    }
    return std::nullopt;
  }

  bool is_part_of_shape(const Op& op) const {
    switch (op.kind) {
      case OpKind::send_activation:
      case OpKind::receive_gradient:
        return receives_gradient(shape_, stage_, op.chunk);
      case OpKind::receive_activation:
      case OpKind::send_gradient:
        return receives_activation(shape_, stage_, op.chunk);
      case OpKind::backward:  // whole or split, not both
        return !ran(OpKind::backward_input, op);
      case OpKind::backward_input:
        return !ran(OpKind::backward, op);
      case OpKind::forward:
      case OpKind::backward_weight:
      case OpKind::reduce:
      case OpKind::update:
        return true;
    }
    return false;
  }

  // What the operation uses and nobody has produced yet.
  std::optional<Op> missing_before(const Op& op) const {
    const auto need = [&](OpKind kind, int chunk) -> std::optional<Op> {
      const Op needed{kind, chunk, op.micro_batch};
      if (ran(kind, needed)) return std::nullopt;
      return needed;
    };
    switch (op.kind) {
      case OpKind::forward:
        if (receives_activation(shape_, stage_, op.chunk)) {
          return need(OpKind::receive_activation, op.chunk);
        }
        // The chunks of a lone stage hand over to each other on the spot.
        return op.chunk > 0 ? need(OpKind::forward, op.chunk - 1) : std::nullopt;
      case OpKind::backward:
      case OpKind::backward_input:
        if (auto forward = need(OpKind::forward, op.chunk)) return forward;
        if (receives_gradient(shape_, stage_, op.chunk)) {
          return need(OpKind::receive_gradient, op.chunk);
        }
        if (op.chunk + 1 < shape_.chunks &&
            !gradient_left({op.kind, op.chunk + 1, op.micro_batch})) {
          return Op{op.kind, op.chunk + 1, op.micro_batch};
        }
        return std::nullopt;
      case OpKind::backward_weight:
        return need(OpKind::backward_input, op.chunk);
      case OpKind::send_activation:
        return need(OpKind::forward, op.chunk);
      case OpKind::send_gradient:
        if (gradient_left(op)) return std::nullopt;
        return Op{OpKind::backward, op.chunk, op.micro_batch};
      case OpKind::receive_activation:
      case OpKind::receive_gradient:
      case OpKind::reduce:
      case OpKind::update:
        return std::nullopt;
    }
    return std::nullopt;
  }

  // Reduce closes the iteration, so everything else must have happened.
  std::optional<std::string> reject_reduce() const {
    for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
      for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
        const auto missing = [&](OpKind kind) {
          return fmt::format("reduce comes before {}", describe({kind, chunk, micro_batch}));
        };
        const Op unit{OpKind::forward, chunk, micro_batch};
        if (!ran(OpKind::forward, unit)) return missing(OpKind::forward);
        if (!gradient_left(unit)) return missing(OpKind::backward);
        if (ran(OpKind::backward_input, unit) && !ran(OpKind::backward_weight, unit)) {
          return missing(OpKind::backward_weight);
        }
        if (sends_activation(shape_, stage_, chunk) && !ran(OpKind::send_activation, unit)) {
          return missing(OpKind::send_activation);
        }
        if (sends_gradient(shape_, stage_, chunk) && !ran(OpKind::send_gradient, unit)) {
          return missing(OpKind::send_gradient);
        }
      }
    }
    return std::nullopt;
  }

  bool gradient_left(const Op& unit) const {
    return ran(OpKind::backward, unit) || ran(OpKind::backward_input, unit);
  }

  std::size_t slot(const Op& op) const {
    return static_cast<std::size_t>(op.chunk) * static_cast<std::size_t>(shape_.micro_batches) +
           static_cast<std::size_t>(op.micro_batch);
  }
  static unsigned bit(OpKind kind) { return 1u << static_cast<unsigned>(kind); }
  bool ran(OpKind kind, const Op& unit) const { return (done_[slot(unit)] & bit(kind)) != 0; }
  void mark(const Op& op) {
    if (op.kind == OpKind::reduce) {
      reduced_ = true;
    } else if (op.kind == OpKind::update) {
      updated_ = true;
    } else {
      done_[slot(op)] |= bit(op.kind);
    }
  }

  PipelineShape shape_;
  int stage_;
  std::vector<unsigned> done_;  // by chunk and micro-batch: a bit for each kind that ran
  bool reduced_ = false, updated_ = false;
};

// Plays all lists together, without times. Whether it gets stuck does not depend on who moves
// first: a send never waits, and each channel has one reader.
std::optional<ScheduleFault> play(const Schedule& schedule, const PipelineShape& shape) {
  struct Message {
    int to_virtual_stage, micro_batch;
  };
  const auto p = static_cast<std::size_t>(shape.stages);
  // By kind (activations, gradients) and sender; the kind fixes the receiver.
  std::array<std::vector<std::deque<Message>>, 2> channels;
  channels.fill(std::vector<std::deque<Message>>(p));
  std::vector<std::size_t> next(p, 0);

  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < p; ++stage) {
      for (; next[stage] < schedule[stage].size(); ++next[stage], moved = true) {
        const Op& op = schedule[stage][next[stage]];
        const int here = virtual_stage(shape, static_cast<int>(stage), op.chunk);
        if (op.kind == OpKind::send_activation) {
          channels[0][stage].push_back({here + 1, op.micro_batch});
        } else if (op.kind == OpKind::send_gradient) {
          channels[1][stage].push_back({here - 1, op.micro_batch});
        } else if (op.kind == OpKind::receive_activation || op.kind == OpKind::receive_gradient) {
          const bool activation = op.kind == OpKind::receive_activation;
          const std::size_t sender = (activation ? stage + p - 1 : stage + 1) % p;
          auto& channel = channels[activation ? 0 : 1][sender];
          if (channel.empty()) break;
          const Message first = channel.front();
          if (first.to_virtual_stage != here || first.micro_batch != op.micro_batch) {
            return ScheduleFault{
                fmt::format("{} meets chunk {}, micro-batch {}, which stage {} sent before it",
                            describe(op), first.to_virtual_stage / shape.stages, first.micro_batch,
                            sender),
                static_cast<int>(stage), next[stage]};
          }
          channel.pop_front();
        }
      }
    }
  }
  for (std::size_t stage = 0; stage < p; ++stage) {
    if (next[stage] == schedule[stage].size()) continue;
    return ScheduleFault{"deadlock: " + describe(schedule[stage][next[stage]]) + " waits for ever",
                         static_cast<int>(stage), next[stage]};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ScheduleFault> verify_schedule(const Schedule& schedule, const PipelineShape& shape) {
  if (schedule.size() != static_cast<std::size_t>(shape.stages)) {
    return ScheduleFault{fmt::format("{} lists for {} stages", schedule.size(), shape.stages), 0,
                         0};
  }
  for (int stage = 0; stage < shape.stages; ++stage) {
    ListChecker checker(shape, stage);
    if (auto fault = checker.check(schedule[static_cast<std::size_t>(stage)])) return fault;
  }
  return play(schedule, shape);
}

}  // namespace braid
