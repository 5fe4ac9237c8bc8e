#pragma once
// A sub-layer written as a plain function of its input and its parameters, for operators whose
// gradients nobody has written by hand yet: x + f(x, parameters), differentiated by libtorch. Its
// parameters are whole on every rank and its tokens narrow, so that it runs under every strategy
// as long as f treats tokens one by one.

#include <functional>
#include <vector>

#include "runtime/models/sublayer.h"
#include "runtime/ops/autograd.h"

namespace braid::models {

class AutogradBlock : public SubLayer {
 public:
  // The function gets x first and then the parameters in the order of their specs.
  AutogradBlock(parallel::Parameters::Declare& declare, int first_slot,
                std::vector<parallel::ParameterSpec> specs, ops::Function function);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Parameters& parameters, parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed,
                      parallel::Parameters& parameters, parallel::Saved& saved,
                      parallel::WeightWork& work) override;

 private:
  std::vector<at::Tensor> arguments(const at::Tensor& x,
                                    const parallel::Parameters& parameters) const;

  int slot_;
  ops::Function function_;
  std::vector<parallel::Parameters::Id> ids_;
};

}  // namespace braid::models
