#include "runtime/models/feed_forward.h"

#include "runtime/ops/activation.h"
#include "runtime/ops/linear.h"
#include "runtime/parallel/square.h"
#include "runtime/parallel/tensor_split.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Direction;
using parallel::Init;
using parallel::Parameters;
using parallel::Saved;

FeedForward::FeedForward(const parallel::Site& site, Parameters::Declare& declare, int first_slot,
                         TokenDropout dropout)
    : site_(site),
      first_slot_(first_slot),
      dropout_(dropout),
      norm_(site, declare, "ffn.norm", slot(Slot::x), slot(Slot::statistics)) {
  const LayerShape& s = site.shape;
  const auto matrix = [&](const char* name) {
    return declare.add({.name = std::string("ffn.") + name + ".weight",
                        .shape = {s.ffn, s.hidden},
                        .cut = CutBy::tensor,
                        .deviation = s.init_std});
  };
  const auto bias = [&](const char* name, std::int64_t width, CutBy cut) {
    return declare.add({.name = std::string("ffn.") + name + ".bias",
                        .shape = {width},
                        .cut = cut,
                        .init = Init::zeros,
                        .decays = false});
  };
  const bool gated = is_gated(s.activation);
  up_ = matrix(gated ? "gate" : "up");
  if (gated) matrix("up");
  if (s.ffn_bias) {
    up_bias_ = bias(gated ? "gate" : "up", s.ffn, CutBy::tensor);
    if (gated) bias("up", s.ffn, CutBy::tensor);
  }
  down_ = declare.add({.name = "ffn.down.weight",
                       .shape = {s.hidden, s.ffn},
                       .cut = CutBy::tensor,
                       .cut_dim = 1,
                       .deviation = s.init_std * s.residual_init_scale});
  if (s.ffn_bias) down_bias_ = bias("down", s.hidden, CutBy::hidden);
}

at::Tensor FeedForward::forward(const at::Tensor& x, const parallel::Feed& feed,
                                Parameters& parameters, Saved& saved) {
  const LayerShape& s = site_.shape;
  const Norm::Normed normed = norm_.forward(x, parameters);
  const at::Tensor wide = parallel::gather_tokens(normed.y, site_);
  const at::Tensor bias = s.ffn_bias ? parameters.fused_weight(up_bias_, inputs()) : at::Tensor();
  const auto [pre, operand] = parallel::linear(wide, parameters.fused_weight(up_, inputs()), bias,
                                               Direction::inward, site_);
  const at::Tensor activated = ops::activate(s.activation, pre);
  saved.keep(slot(Slot::x), x);
  if (!norm_.is_cheap()) saved.keep(slot(Slot::normed), site_.as_published() ? operand : normed.y);
  saved.keep(slot(Slot::statistics), normed.statistics);
  saved.keep(slot(Slot::pre), pre);

  return norm_.behind(onto_residual(x, activated, parameters.weight(down_),
                                    s.ffn_bias ? parameters.weight(down_bias_) : at::Tensor(),
                                    dropout_, feed, site_),
                      parameters, saved);
}

at::Tensor FeedForward::backward(const at::Tensor& dresult, const parallel::Feed& feed,
                                 Parameters& parameters, Saved& saved, parallel::WeightWork& work) {
  const LayerShape& s = site_.shape;
  const at::Tensor dy = norm_.behind_backward(dresult, parameters, saved, work);
  const at::Tensor& pre = saved.at(slot(Slot::pre));
  const at::Tensor dropped = dropout_(dy, feed);
  const at::Tensor wide_dy = parallel::gather_tokens(dropped, site_);
  auto [dactivated, down_operand] =
      parallel::linear_input_gradient(wide_dy, parameters.weight(down_), Direction::outward, site_);
  auto [dpre, activated] = ops::activate_again(s.activation, dactivated, pre);
  work.later(
      [this, &parameters, dropped, down_dy = down_operand, activated = std::move(activated)] {
        parallel::add_weight_gradient(parameters.gradient_sum(down_), down_dy, activated,
                                      Direction::outward, site_);
        if (site_.shape.ffn_bias)
          ops::add_bias_gradient(parameters.gradient_sum(down_bias_), dropped);
      });
  const auto [dwide, up_operand] = parallel::linear_input_gradient(
      dpre, parameters.fused_weight(up_, inputs()), Direction::inward, site_);
  const at::Tensor dnormed = parallel::scatter_sum(dwide, site_);
  const auto [dx, made] = norm_.backward(dnormed, saved.at(slot(Slot::x)),
                                         saved.at(slot(Slot::statistics)), parameters, work, dy);
  work.later([this, &parameters, bias_dy = s.ffn_bias ? dpre : at::Tensor(), up_dy = up_operand,
              normed = made.defined() ? made : saved.at(slot(Slot::normed))] {
    const at::Tensor wide = parallel::gather_tokens(normed, site_);
    parallel::add_weight_gradient(parameters.fused_gradient_sum(up_, inputs()), up_dy, wide,
                                  Direction::inward, site_);
    if (bias_dy.defined())
      ops::add_bias_gradient(parameters.fused_gradient_sum(up_bias_, inputs()), bias_dy);
  });
  return dx;
}

}  // namespace braid::models
