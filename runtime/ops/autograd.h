#pragma once
// For operators nobody has written by hand yet: forward through libtorch's autograd, backward on
// demand.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace braid::ops {

using Function = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// One call of a differentiable function, kept for its backward.
class Recorded {
 public:
  Recorded(const Function& function, const std::vector<at::Tensor>& inputs);
  const at::Tensor& output() const { return output_; }  // detached
  // Gradients of the inputs, undefined where an input has none (integers). Once.
  std::vector<at::Tensor> backward(const at::Tensor& gradient);

 private:
  std::vector<at::Tensor> inputs_;
  at::Tensor output_, recorded_;
};

}  // namespace braid::ops
