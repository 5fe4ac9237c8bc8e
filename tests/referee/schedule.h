#pragma once
// Pipeline schedules as lists of operations, written from their published descriptions, and a
// player of events: each stage works through its list in order, a send leaves without holding its
// stage, a pass waits for its input, and the optimizer waits until every stage has reduced its
// gradients.

#include <vector>

#include "planner/strategy/pipeline.h"

namespace braid::referee {

enum class Pass { forward, backward, backward_input, backward_weight };
struct Operation {
  Pass pass = Pass::forward;
  int chunk = 0, micro_batch = 0;
};

std::vector<Operation> operations_of(const PipelineShape& shape, int stage);

// Seconds of one micro-batch in one chunk of a stage.
struct ChunkSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0;
};
struct StageSeconds {
  std::vector<ChunkSeconds> chunks;
  double reduce = 0, update = 0;  // once a step
  double to_next = 0;             // activation to the next stage, or its gradient back
};

// Seconds of a step. The last stage's to_next leads to the first stage.
double play(const PipelineShape& shape, const std::vector<StageSeconds>& stages);

}  // namespace braid::referee
