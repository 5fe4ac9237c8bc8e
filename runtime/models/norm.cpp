#include "runtime/models/norm.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/ops/norm.h"

namespace braid::models {

using parallel::Init;
using parallel::Parameters;

Norm::Norm(const parallel::Site& site, Parameters::Declare& declare, const std::string& prefix)
    : kind_(site.shape.norm), epsilon_(site.shape.norm_epsilon) {
  weight_ = declare.add({.name = prefix + ".weight",
                         .shape = {site.shape.hidden},
                         .init = Init::ones,
                         .decays = false});
  if (kind_ == NormKind::layer_norm)
    bias_ = declare.add({.name = prefix + ".bias",
                         .shape = {site.shape.hidden},
                         .init = Init::zeros,
                         .decays = false});
}

Norm::Normed Norm::forward(const at::Tensor& x, const Parameters& parameters) const {
  if (kind_ == NormKind::rms_norm) {
    ops::RmsNorm normed = ops::rms_norm(x, parameters.weight(weight_), epsilon_);
    return {normed.y, normed.statistics};
  }
  ops::LayerNorm normed =
      ops::layer_norm(x, parameters.weight(weight_), parameters.weight(bias_), epsilon_);
  return {normed.y, normed.statistics};
}

at::Tensor Norm::backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& statistics,
                          Parameters& parameters, parallel::WeightWork& work,
                          const at::Tensor& residual) const {
  // Weight gradients come out beside dx and are only as wide as the layer: they wait as they are.
  const at::Tensor weight = parameters.weight(weight_);
  const at::ScalarType type = x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type();
  at::Tensor dweight = at::zeros(weight.sizes(), x.options().dtype(type));
  if (kind_ == NormKind::rms_norm) {
    at::Tensor dx = ops::rms_norm_backward(dy, x, statistics, weight, dweight, residual);
    work.later([&parameters, id = weight_, dweight] { parameters.gradient(id).add_(dweight); });
    return dx;
  }
  at::Tensor dbias = at::zeros_like(dweight);
  at::Tensor dx = ops::layer_norm_backward(dy, x, statistics, weight, dweight, dbias, residual);
  work.later([&parameters, id = weight_, bias = bias_, dweight, dbias] {
    parameters.gradient(id).add_(dweight);
    parameters.gradient(bias).add_(dbias);
  });
  return dx;
}

}  // namespace braid::models
