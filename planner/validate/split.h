#pragma once
// How a run was split, with nothing left unsaid, and what that costs under a setup.

#include <optional>
#include <string>
#include <vector>

#include "planner/validate/setup.h"
#include "planner/validate/shape.h"

namespace braid {

struct RunStage {
  int begin = 0, end = 0;  // items of the model
  int tp = 1;
  double repeated = 0;  // share of the blocks whose forward pass is repeated
};

struct RunSplit {
  int cp = 1, dp = 1;
  int micro_batch = 1;
  int micro_batches = 1;
  int interleave = 1;
  bool sequence_parallel = false;
  bool flash = false;
  bool sharded = false;               // parameters gathered layer by layer
  bool fp8 = false, rowwise = false;  // a scale for each row instead of one for the tensor
  bool eager = false;                 // not compiled where the program usually is
  bool selective = false;             // some operators are computed twice
  std::vector<RunStage> stages;

  int devices_before(int stage) const;
};

struct RunPrediction {
  double seconds = 0;           // one iteration
  double lower = 0, upper = 0;  // where the measured time is expected nine times of ten
  double bound = 0;             // no device is faster: its arithmetic at its peak
};

RunPrediction price(const ModelShape& model, const RunSplit& split, const RunSetup& setup);
// One micro-batch of one stage, forward and backward.
double stage_seconds(const ModelShape& model, const RunSplit& split, const RunSetup& setup,
                     int stage);

// Bytes of one device of a stage.
struct RunMemory {
  double states = 0;
  double activations = 0;
  double workspace = 0;  // the block computed anew, or the logits
  double total() const { return states + activations + workspace; }
};
RunMemory memory_of(const ModelShape& model, const RunSplit& split, int stage);

}  // namespace braid
