#include "runtime/models/norm.h"

#include "runtime/ops/linear.h"
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
  if (kind_ == NormKind::rms_norm) return;
  bias_ = declare.add({.name = prefix + ".bias",
                       .shape = {copies * site.shape.hidden},
                       .cut = CutBy::hidden,
                       .init = Init::zeros,
                       .decays = false});
  num_parameters_ = 2;
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
  const ops::NormGradients made =
      gradients(dy, x, statistics, parameters, {.residual = residual, .again = again});
  // The weights' gradients come out beside dx, in some rows.
  work.later([&parameters, id = weight_, count = num_parameters_, rows = work.rows(made.rows)] {
    ops::add_rows(parameters.fused_gradient_sum(id, count), rows);
  });
  return made.dx;
}

ops::NormGradients Norm::gradients(const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& statistics, const Parameters& parameters,
                                   ops::BesideNorm beside) const {
  const at::Tensor weight = parameters.weight(weight_);
  const bool rms = kind_ == NormKind::rms_norm;
  if (site_.in_square()) {
    ops::NormGradients made =
        (rms ? parallel::square_rms_norm_backward : parallel::square_layer_norm_backward)(
            dy, x, statistics, weight, site_);
    made.dx = plus(made.dx, beside.residual);
    return made;
  }
  if (rms) return ops::rms_norm_backward(dy, x, statistics, weight, beside);
  beside.bias = parameters.weight(bias_);
  return ops::layer_norm_backward(dy, x, statistics, weight, beside);
}

}  // namespace braid::models
