#pragma once
// What stands between the last block and a head's matrix: a norm or nothing, BERT's transform, the
// choice of a class token, or the mean of all tokens.

#include <memory>

#include "runtime/models/norm.h"

namespace braid::models {

class HeadInput {
 public:
  virtual ~HeadInput() = default;
  // From the narrow tokens [tokens, samples, hidden] to what this rank's rows of the matrix see.
  virtual at::Tensor forward(const at::Tensor& x, const parallel::Parameters& parameters,
                             parallel::Saved& saved) = 0;
  // Keeps the gradient of that, of which every rank of a tensor group has a summand.
  virtual void keep_gradient(const at::Tensor& gradient, parallel::Saved& saved) = 0;
  // The gradient of x.
  virtual at::Tensor backward(parallel::Parameters& parameters, parallel::Saved& saved,
                              parallel::WeightWork& work) = 0;
};

std::unique_ptr<HeadInput> make_head_input(const parallel::Site& site,
                                           parallel::Parameters::Declare& declare);

}  // namespace braid::models
