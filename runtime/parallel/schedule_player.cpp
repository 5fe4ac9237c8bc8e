#include "runtime/parallel/schedule_player.h"

#include <fmt/core.h>

#include "planner/core/error.h"
#include "planner/simulate/verify_schedule.h"

namespace braid::parallel {

Schedule proven_schedule(const PipelineShape& shape) {
  Schedule schedule = make_schedule(shape);
  if (const auto fault = verify_schedule(schedule, shape))
    internal_failure(fmt::format("schedule '{}': stage {}, operation {}: {}",
                                 name_of(shape.schedule), fault->stage, fault->op, fault->what),
                     std::source_location::current());
  return schedule;
}

namespace {

void play(const Op& op, StageWork& work) {
  switch (op.kind) {
    case OpKind::forward:
      return work.forward(op.chunk, op.micro_batch);
    case OpKind::backward:
      return work.backward(op.chunk, op.micro_batch);
    case OpKind::backward_input:
      return work.backward_input(op.chunk, op.micro_batch);
    case OpKind::backward_weight:
      return work.backward_weight(op.chunk, op.micro_batch);
    case OpKind::send_activation:
      return work.send_activation(op.chunk, op.micro_batch);
    case OpKind::receive_activation:
      return work.receive_activation(op.chunk, op.micro_batch);
    case OpKind::send_gradient:
      return work.send_gradient(op.chunk, op.micro_batch);
    case OpKind::receive_gradient:
      return work.receive_gradient(op.chunk, op.micro_batch);
    case OpKind::reduce:
      return work.reduce();
    case OpKind::update:
      return work.update();
  }
}

}  // namespace

void play(const OpList& list, StageWork& work, const Watch& watch) {
  for (const Op& op : list) {
    play(op, work);
    if (watch) watch(op);
  }
}

}  // namespace braid::parallel
