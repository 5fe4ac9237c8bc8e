#include "runtime/models/norm.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/ops/norm.h"
#include "runtime/parallel/square_norm.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Init;
using parallel::Parameters;

namespace {

at::Tensor plus(const at::Tensor& dx, const at::Tensor& residual) {
  return residual.defined() ? dx.add_(residual) : dx;
}

}  // namespace

Norm::Norm(const parallel::Site& site, Parameters::Declare& declare, const std::string& prefix,
           std::int64_t copies)
    : site_(site), kind_(site.shape.norm), epsilon_(site.shape.norm_epsilon) {
  weight_ = declare.add({.name = prefix + ".weight",
                         .shape = {copies * site.shape.hidden},
                         .cut = CutBy::hidden,
                         .init = Init::ones,
                         .decays = false});
  if (kind_ == NormKind::layer_norm)
    bias_ = declare.add({.name = prefix + ".bias",
                         .shape = {copies * site.shape.hidden},
                         .cut = CutBy::hidden,
                         .init = Init::zeros,
                         .decays = false});
}

Norm::Normed Norm::forward(const at::Tensor& x, const Parameters& parameters) const {
  if (kind_ == NormKind::rms_norm) {
    const at::Tensor weight = parameters.weight(weight_);
    ops::RmsNorm normed = site_.in_square() ? parallel::square_rms_norm(x, weight, epsilon_, site_)
                                            : ops::rms_norm(x, weight, epsilon_);
    return {normed.y, normed.statistics};
  }
  const at::Tensor weight = parameters.weight(weight_), bias = parameters.weight(bias_);
  ops::LayerNorm normed = site_.in_square()
                              ? parallel::square_layer_norm(x, weight, bias, epsilon_, site_)
                              : ops::layer_norm(x, weight, bias, epsilon_);
  return {normed.y, normed.statistics};
}

at::Tensor Norm::backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& statistics,
                          Parameters& parameters, parallel::WeightWork& work,
                          const at::Tensor& residual, const at::Tensor& again) const {
  // Weight gradients come out beside dx and are only as wide as the layer: they wait as they are.
  const at::Tensor weight = parameters.weight(weight_);
  const at::ScalarType type = x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type();
  at::Tensor dweight = at::zeros(weight.sizes(), x.options().dtype(type));
  if (kind_ == NormKind::rms_norm) {
    at::Tensor dx =
        site_.in_square()
            ? plus(parallel::square_rms_norm_backward(dy, x, statistics, weight, dweight, site_),
                   residual)
            : ops::rms_norm_backward(dy, x, statistics, weight, dweight,
                                     {.residual = residual, .again = again});
    work.later([&parameters, id = weight_, dweight] { parameters.gradient(id).add_(dweight); });
    return dx;
  }
  at::Tensor dbias = at::zeros_like(dweight);
  at::Tensor dx =
      site_.in_square()
          ? plus(parallel::square_layer_norm_backward(dy, x, statistics, weight, dweight, dbias,
                                                      site_),
                 residual)
          : ops::layer_norm_backward(
                dy, x, statistics, weight, dweight, dbias,
                {.residual = residual, .again = again, .bias = parameters.weight(bias_)});
  work.later([&parameters, id = weight_, bias = bias_, dweight, dbias] {
    parameters.gradient(id).add_(dweight);
    parameters.gradient(bias).add_(dbias);
  });
  return dx;
}

}  // namespace braid::models
