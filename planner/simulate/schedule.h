#pragma once
// A schedule is data: for every stage the list of operations it runs, in order. The simulator plays
// the list on a clock and the runtime plays the same list on tensors.

#include <compare>
#include <span>
#include <string>
#include <vector>

#include "planner/core/units.h"
#include "planner/strategy/pipeline.h"

namespace braid {

enum class OpKind {
  forward,
  backward,  // gradient of input and weights together
  backward_input,
  backward_weight,
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
  reduce,  // sum gradients over the replicas; once, after the last backward
  update,  // optimizer; once, after all stages have reduced
};
std::string name_of(OpKind kind);

// A transfer carries the chunk and micro-batch of the operation it serves on its own stage: what
// chunk 0 of the last stage sends, chunk 1 of the first one receives.
struct Op {
  OpKind kind = OpKind::forward;
  int chunk = 0;
  int micro_batch = 0;

  constexpr auto operator<=>(const Op&) const = default;
};

using OpList = std::vector<Op>;        // one stage, in order
using Schedule = std::vector<OpList>;  // by stage

// The shape must be `schedulable`.
Schedule make_schedule(const PipelineShape& shape);
OpList stage_schedule(const PipelineShape& shape, int stage);  // one of its lists

// Chunk c of stage i is virtual stage c * stages + i: the model's layers run through the stages
// `chunks` times.
constexpr int virtual_stage(const PipelineShape& shape, int stage, int chunk) {
  return chunk * shape.stages + stage;
}
constexpr int num_virtual_stages(const PipelineShape& shape) { return shape.stages * shape.chunks; }

// Whether a stage gets its input (its gradient) from another one. Chunks of a lone stage are
// neighbours on one device, so nothing travels.
constexpr bool receives_activation(const PipelineShape& shape, int stage, int chunk) {
  return shape.stages > 1 && virtual_stage(shape, stage, chunk) > 0;
}
constexpr bool receives_gradient(const PipelineShape& shape, int stage, int chunk) {
  return shape.stages > 1 && virtual_stage(shape, stage, chunk) < num_virtual_stages(shape) - 1;
}
// A stage sends its output exactly where the gradient will come back, and the other way round.
constexpr bool sends_activation(const PipelineShape& shape, int stage, int chunk) {
  return receives_gradient(shape, stage, chunk);
}
constexpr bool sends_gradient(const PipelineShape& shape, int stage, int chunk) {
  return receives_activation(shape, stage, chunk);
}

// The most micro-batches of the whole stage whose activations live at once: a forward allocates
// one `chunks`-th, a backward (the input's, where it is split) frees it.
double peak_in_flight(const OpList& list, int chunks);
// The same in bytes, where a micro-batch keeps `per_chunk` bytes in each chunk: uneven chunks hold
// more or less than their share.
Bytes peak_saved(const OpList& list, std::span<const Bytes> per_chunk);

}  // namespace braid
