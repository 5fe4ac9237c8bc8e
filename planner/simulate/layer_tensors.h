#pragma once
// The tensors behind a layer's bytes on one device: what planner/model sums up, one by one.

#include <vector>

#include "planner/plan/plan.h"

namespace braid {

struct LayerTensors {
  std::vector<Bytes> states;         // flat buffers that stay: weights, optimizer
  std::vector<Bytes> gradients;      // from the first backward of a step to its update
  std::vector<Bytes> saved;          // from forward to backward, one micro-batch
  std::vector<Bytes> forward_work;   // short-lived
  std::vector<Bytes> backward_work;  // with what enters and leaves, and what recomputation brings
  std::vector<Bytes> weight_work;    // of a backward by weights alone
  Bytes deferred;                    // kept for a weight gradient that waits …
  std::vector<Bytes> waits;          // … with what lies in the tensor group's memory
  int tensor = 1;                    // how large that group is
  Bytes gathered;                    // whole weights under ZeRO-3, while the layer works
  Bytes whole_gradient;              // under ZeRO-2 and 3, until it is scattered
  Bytes share;                       // what arrives of it
  int replicas = 1;                  // whose group has the memory for the two
  Bytes input, output;               // what it takes and hands on (of their gradients, as much)
  bool gradients_in_forward = false;
  bool gradients_stay = false;  // from one step to the next
};

// Sums of states with gradients, saved and deferred (with what waits) are the planner's, to the
// byte, as long as nothing was measured.
LayerTensors layer_tensors(const Plan& plan, int layer, const Strategy& strategy);

}  // namespace braid
