#include "runtime/models/autograd_block.h"

#include <utility>

namespace braid::models {

AutogradBlock::AutogradBlock(parallel::Parameters::Declare& declare, int first_slot,
                             std::vector<parallel::ParameterSpec> specs, ops::Function function)
    : slot_(first_slot), function_(std::move(function)) {
  ids_.reserve(specs.size());
  for (parallel::ParameterSpec& spec : specs) ids_.push_back(declare.add(std::move(spec)));
}

std::vector<at::Tensor> AutogradBlock::arguments(const at::Tensor& x,
                                                 const parallel::Parameters& parameters) const {
  std::vector<at::Tensor> inputs = {x};
  for (const parallel::Parameters::Id id : ids_) inputs.push_back(parameters.weight(id));
  return inputs;
}

// Only x is kept; backward runs the function again, this time recorded. So what stays between the
// two is known without looking into the function.
at::Tensor AutogradBlock::forward(const at::Tensor& x, const parallel::Feed&,
                                  parallel::Parameters& parameters, parallel::Saved& saved) {
  saved.keep(slot_, x);
  return x.add(function_(arguments(x, parameters)));
}

at::Tensor AutogradBlock::backward(const at::Tensor& dy, const parallel::Feed&,
                                   parallel::Parameters& parameters, parallel::Saved& saved,
                                   parallel::WeightWork& work) {
  ops::Recorded recorded(function_, arguments(saved.at(slot_), parameters));
  std::vector<at::Tensor> gradients = recorded.backward(dy);
  at::Tensor dx = gradients.front().add(dy);
  work.later([this, &parameters, gradients = std::move(gradients)] {
    for (std::size_t i = 0; i < ids_.size(); ++i)
      parameters.gradient(ids_[i]).add_(gradients[i + 1]);
  });
  return dx;
}

}  // namespace braid::models
