#include "planner/simulate/schedule.h"

#include <algorithm>
#include <utility>

#include "planner/core/error.h"
#include "planner/cost/pipeline.h"

namespace braid {
namespace {

// Appends compute operations together with the transfers around them.
class StageList {
 public:
  StageList(const PipelineShape& shape, int stage) : shape_(shape), stage_(stage) {
    const auto units =
        static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches);
    ops_.reserve(units * 7 + 2);  // three of compute, four of transfer
  }

  void forward(int chunk, int micro_batch) {
    if (receives_activation(shape_, stage_, chunk)) {
      add(OpKind::receive_activation, chunk, micro_batch);
    }
    add(OpKind::forward, chunk, micro_batch);
    if (sends_activation(shape_, stage_, chunk)) add(OpKind::send_activation, chunk, micro_batch);
  }
  void backward(int chunk, int micro_batch) { backward(OpKind::backward, chunk, micro_batch); }
  void backward_input(int micro_batch) { backward(OpKind::backward_input, 0, micro_batch); }
  void backward_weight(int micro_batch) { add(OpKind::backward_weight, 0, micro_batch); }

  OpList finish() {
    add(OpKind::reduce, 0, 0);
    add(OpKind::update, 0, 0);
    return std::move(ops_);
  }

 private:
  void backward(OpKind kind, int chunk, int micro_batch) {
    if (receives_gradient(shape_, stage_, chunk)) {
      add(OpKind::receive_gradient, chunk, micro_batch);
    }
    add(kind, chunk, micro_batch);
    if (sends_gradient(shape_, stage_, chunk)) add(OpKind::send_gradient, chunk, micro_batch);
  }
  void add(OpKind kind, int chunk, int micro_batch) { ops_.push_back({kind, chunk, micro_batch}); }

  PipelineShape shape_;
  int stage_;
  OpList ops_;
};

void add_gpipe(StageList& list, int micro_batches) {
  for (int k = 0; k < micro_batches; ++k) list.forward(0, k);
  for (int k = 0; k < micro_batches; ++k) list.backward(0, k);
}

// Enough forwards to reach the last stage before the first gradient comes back, then one of each.
void add_one_f_one_b(StageList& list, const PipelineShape& shape, int stage) {
  const int m = shape.micro_batches;
  const int warm_up = std::min(shape.stages - 1 - stage, m);
  for (int k = 0; k < warm_up; ++k) list.forward(0, k);
  for (int k = 0; k < m; ++k) {
    if (warm_up + k < m) list.forward(0, warm_up + k);
    list.backward(0, k);
  }
}

// Megatron's order (Narayanan et al., 2021): micro-batches go through the chunks in groups of
// `stages`; backwards visit the chunks from the last one.
void add_interleaved(StageList& list, const PipelineShape& shape, int stage) {
  const int p = shape.stages, v = shape.chunks;
  const int units = shape.micro_batches * v;
  const auto chunk_of = [&](int unit) { return unit % (p * v) / p; };
  const auto micro_batch_of = [&](int unit) { return unit / (p * v) * p + unit % p; };

  const int warm_up = std::min(2 * (p - 1 - stage) + (v - 1) * p, units);
  for (int k = 0; k < warm_up; ++k) list.forward(chunk_of(k), micro_batch_of(k));
  for (int k = 0; k < units; ++k) {
    const int ahead = warm_up + k;
    if (ahead < units) list.forward(chunk_of(ahead), micro_batch_of(ahead));
    list.backward(v - 1 - chunk_of(k), micro_batch_of(k));
  }
}

// ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2024): 1F1B whose stage i lags i weight
// gradients behind. The last stage thus passes gradients upwards as early as it can, and no stage
// holds more than the `stages` micro-batches that the first stage of 1F1B holds.
void add_zero_bubble(StageList& list, const PipelineShape& shape, int stage) {
  const int m = shape.micro_batches;
  const int warm_up = std::min(shape.stages - 1 - stage, m);
  const int lag = std::min(stage, m);
  for (int k = 0; k < warm_up; ++k) list.forward(0, k);
  for (int k = 0; k < m; ++k) {
    if (warm_up + k < m) list.forward(0, warm_up + k);
    list.backward_input(k);
    if (k >= lag) list.backward_weight(k - lag);
  }
  for (int k = m - lag; k < m; ++k) list.backward_weight(k);
}

}  // namespace

OpList stage_schedule(const PipelineShape& shape, int stage) {
  StageList list(shape, stage);
  switch (shape.schedule) {
    case ScheduleKind::gpipe:
      add_gpipe(list, shape.micro_batches);
      break;
    case ScheduleKind::one_f_one_b:
      add_one_f_one_b(list, shape, stage);
      break;
    case ScheduleKind::interleaved:
      // With one chunk Megatron's warm-up would hold twice the activations and win nothing.
      if (shape.chunks == 1) {
        add_one_f_one_b(list, shape, stage);
      } else {
        add_interleaved(list, shape, stage);
      }
      break;
    case ScheduleKind::zero_bubble:
      if (shape.stages == 1) {  // nobody waits for the input's gradient
        add_one_f_one_b(list, shape, stage);
      } else {
        add_zero_bubble(list, shape, stage);
      }
      break;
  }
  return list.finish();
}

std::string name_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward:
      return "forward";
    case OpKind::backward:
      return "backward";
    case OpKind::backward_input:
      return "backward_input";
    case OpKind::backward_weight:
      return "backward_weight";
    case OpKind::send_activation:
      return "send_activation";
    case OpKind::receive_activation:
      return "receive_activation";
    case OpKind::send_gradient:
      return "send_gradient";
    case OpKind::receive_gradient:
      return "receive_gradient";
    case OpKind::reduce:
      return "reduce";
    case OpKind::update:
      return "update";
  }
  internal_failure("an operation without a name", std::source_location::current());
}

Schedule make_schedule(const PipelineShape& shape) {
  internal_check(schedulable(shape), "a schedule for a shape that has none");
  Schedule schedule;
  schedule.reserve(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage)
    schedule.push_back(stage_schedule(shape, stage));
  return schedule;
}

namespace {

bool frees_activations(const Op& op) {
  return op.kind == OpKind::backward || op.kind == OpKind::backward_input;
}

}  // namespace

double peak_in_flight(const OpList& list, int chunks) {
  int held = 0, peak = 0;
  for (const Op& op : list) {
    if (op.kind == OpKind::forward) peak = std::max(peak, ++held);
    if (frees_activations(op)) --held;
  }
  return static_cast<double>(peak) / chunks;
}

Bytes peak_saved(const OpList& list, std::span<const Bytes> per_chunk) {
  Bytes held, peak;
  for (const Op& op : list) {
    const Bytes one = per_chunk[static_cast<std::size_t>(op.chunk)];
    if (op.kind == OpKind::forward) peak = std::max(peak, held += one);
    if (frees_activations(op)) held -= one;
  }
  return peak;
}

}  // namespace braid
