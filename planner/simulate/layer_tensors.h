#pragma once
// The tensors behind a layer's bytes on one device: what planner/model sums up, one by one.

#include <vector>

#include "planner/plan/plan.h"

namespace braid {

struct LayerTensors {
  std::vector<Bytes> states;         // flat buffers: weights, gradients, optimizer
  std::vector<Bytes> saved;          // from forward to backward, one micro-batch
  std::vector<Bytes> forward_work;   // short-lived
  std::vector<Bytes> backward_work;  // with what recomputation brings back
  Bytes deferred;                    // kept for a weight gradient that waits
  Bytes gathered;                    // whole weights under ZeRO-3, while the layer works
  Bytes whole_gradient;              // under ZeRO-2 and 3, until it is scattered
  Bytes weight_gradient;             // of one matrix, ahead of being added
  Bytes input;                       // what the layer before hands over (of its gradient, as much)
};

// Sums of states, saved and deferred are the planner's, to the byte, as long as nothing was
// measured.
LayerTensors layer_tensors(const Plan& plan, int layer, const Strategy& strategy);

}  // namespace braid
