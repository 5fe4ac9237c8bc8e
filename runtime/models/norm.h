#pragma once
// The norm ahead of a sub-layer, of whichever kind its shape names.

#include <string>

#include "runtime/ops/norm.h"
#include "runtime/parallel/layer.h"

namespace braid::models {

class Norm {
 public:
  // `prefix` of its parameters: "attention.norm". As wide as the model, or `copies` times that.
  Norm(const parallel::Site& site, parallel::Parameters::Declare& declare,
       const std::string& prefix, std::int64_t copies = 1);

  struct Normed {
    at::Tensor y, statistics;
  };
  Normed forward(const at::Tensor& x, const parallel::Parameters& parameters) const;
  // The gradient of x, with `residual` added where it is given. Where `again` is given, forward's y
  // is written to it, which costs less than another forward; not in a square.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& statistics,
                      parallel::Parameters& parameters, parallel::WeightWork& work,
                      const at::Tensor& residual = {}, const at::Tensor& again = {}) const;

 private:
  ops::NormGradients gradients(const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& statistics, const parallel::Parameters& parameters,
                               ops::BesideNorm beside) const;

  const parallel::Site& site_;
  NormKind kind_;
  double epsilon_;
  int num_parameters_ = 1;  // the weight, and behind it a LayerNorm's bias
  parallel::Parameters::Id weight_ = 0, bias_ = 0;
};

}  // namespace braid::models
