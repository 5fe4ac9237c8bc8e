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

void play(const OpList& list, StageWork& work) {
  for (const Op& op : list) switch (op.kind) {
      case OpKind::forward:
        work.forward(op.chunk, op.micro_batch);
        break;
      case OpKind::backward:
        work.backward(op.chunk, op.micro_batch);
        break;
      case OpKind::backward_input:
        work.backward_input(op.chunk, op.micro_batch);
        break;
      case OpKind::backward_weight:
        work.backward_weight(op.chunk, op.micro_batch);
        break;
      case OpKind::send_activation:
        work.send_activation(op.chunk, op.micro_batch);
        break;
      case OpKind::receive_activation:
        work.receive_activation(op.chunk, op.micro_batch);
        break;
      case OpKind::send_gradient:
        work.send_gradient(op.chunk, op.micro_batch);
        break;
      case OpKind::receive_gradient:
        work.receive_gradient(op.chunk, op.micro_batch);
        break;
      case OpKind::reduce:
        work.reduce();
        break;
      case OpKind::update:
        work.update();
        break;
    }
}

}  // namespace braid::parallel
