#include "runtime/ops/autograd.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "planner/core/error.h"

namespace braid::ops {

Recorded::Recorded(const Function& function, const std::vector<at::Tensor>& inputs) {
  const at::AutoGradMode record(true);
  inputs_.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    at::Tensor leaf = input.defined() ? input.detach() : input;
    if (leaf.defined() && leaf.is_floating_point()) leaf.requires_grad_(true);
    inputs_.push_back(std::move(leaf));
  }
  recorded_ = function(inputs_);
  output_ = recorded_.detach();
}

std::vector<at::Tensor> Recorded::backward(const at::Tensor& gradient) {
  internal_check(recorded_.defined(), "a recorded call has one backward");
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs_) {
    if (input.defined() && input.requires_grad()) leaves.push_back(input);
  }
  std::vector<at::Tensor> gradients(inputs_.size());
  if (recorded_.requires_grad()) {
    const std::vector<at::Tensor> found =
        torch::autograd::grad({std::exchange(recorded_, {})}, leaves, {gradient},
                              /*retain_graph=*/false, /*create_graph=*/false,
                              /*allow_unused=*/true);
    std::size_t next = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].defined() && inputs_[i].requires_grad()) gradients[i] = found[next++];
    }
  }
  recorded_.reset();
  inputs_.clear();
  return gradients;
}

}  // namespace braid::ops
