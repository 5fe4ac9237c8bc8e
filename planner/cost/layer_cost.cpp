#include "planner/cost/layer_cost.h"

#include <algorithm>

namespace braid {

LayerTime& LayerTime::operator+=(const LayerTime& other) {
  forward_compute += other.forward_compute;
  backward_input_compute += other.backward_input_compute;
  backward_weight_compute += other.backward_weight_compute;
  recompute += other.recompute;
  forward_tensor += other.forward_tensor;
  backward_tensor += other.backward_tensor;
  forward_context += other.forward_context;
  backward_context += other.backward_context;
  forward_expert += other.forward_expert;
  backward_expert += other.backward_expert;
  forward_gather += other.forward_gather;
  backward_gather += other.backward_gather;
  reduce += other.reduce;
  regather += other.regather;
  update += other.update;
  hidden_tensor += other.hidden_tensor;
  hidden_context += other.hidden_context;
  hidden_gather += other.hidden_gather;
  hidden_reduce += other.hidden_reduce;
  return *this;
}

LayerMemory& LayerMemory::operator+=(const LayerMemory& other) {
  weights += other.weights;
  gradients += other.gradients;
  optimizer += other.optimizer;
  activations += other.activations;
  deferred += other.deferred;
  in_turn += other.in_turn;
  constants += other.constants;
  workspace = std::max(workspace, other.workspace);
  return *this;
}

}  // namespace braid
