#include "runtime/models/feed_forward.h"

#include <ATen/ops/empty.h>

#include "runtime/ops/activation.h"
#include "runtime/ops/linear.h"
#include "runtime/parallel/square.h"

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
  const Norm::Normed normed = norm_.forward(x, parameters);
  saved.keep(slot(Slot::x), x);
  saved.keep(slot(Slot::statistics), normed.statistics);
  const at::Tensor bias = site_.shape.ffn_bias ? parameters.weight(down_bias_) : at::Tensor();
  if (site_.chunks > 1) {
    if (!norm_.is_cheap()) saved.keep(slot(Slot::normed), normed.y);
    parallel::Scattering sum = in_chunks(normed.y, parameters, saved);
    return norm_.behind(onto_residual(x, sum, bias, dropout_, feed), parameters, saved);
  }
  const auto [pre, operand] = parallel::linear(parallel::gather_tokens(normed.y, site_),
                                               parameters.fused_weight(up_, inputs()),
                                               up_bias(parameters), Direction::inward, site_);
  const at::Tensor activated = ops::activate(site_.shape.activation, pre);
  if (!norm_.is_cheap()) saved.keep(slot(Slot::normed), site_.as_published() ? operand : normed.y);
  saved.keep(slot(Slot::pre), pre);
  return norm_.behind(
      onto_residual(x, activated, parameters.weight(down_), bias, dropout_, feed, site_),
      parameters, saved);
}

// Nothing here looks at another token, so that their order is free: as the chunks have it.
parallel::Scattering FeedForward::in_chunks(const at::Tensor& normed, const Parameters& parameters,
                                            Saved& saved) const {
  parallel::Gathering wide(normed, site_, site_.chunks);
  parallel::Scattering sum(site_, site_.chunks);
  const at::Tensor up = parameters.fused_weight(up_, inputs()), bias = up_bias(parameters);
  const std::int64_t rows = normed.size(0) * site_.outer->size() / site_.chunks;
  const at::Tensor pre =
      at::empty({site_.chunks * rows, normed.size(1), up.size(0)}, normed.options());
  for (int i = 0; i < site_.chunks; ++i) {
    const at::Tensor part = pre.narrow(0, i * rows, rows);
    ops::linear_into(part, wide.wait(i), up, bias);
    sum.add(parallel::linear(ops::activate(site_.shape.activation, part), parameters.weight(down_),
                             {}, Direction::outward, site_)
                .value);
  }
  saved.keep(slot(Slot::pre), pre);
  return sum;
}

at::Tensor FeedForward::up_bias(const Parameters& parameters) const {
  return site_.shape.ffn_bias ? parameters.fused_weight(up_bias_, inputs()) : at::Tensor();
}

at::Tensor FeedForward::backward(const at::Tensor& dresult, const parallel::Feed& feed,
                                 Parameters& parameters, Saved& saved, parallel::WeightWork& work) {
  const LayerShape& s = site_.shape;
  const at::Tensor dy = norm_.behind_backward(dresult, parameters, saved, work);
  const at::Tensor& pre = saved.at(slot(Slot::pre));
  const at::Tensor dropped = dropout_(dy, feed);
  parallel::Gathering arriving(dropped, site_, site_.chunks);
  // Long ahead of its turn, so that the sums below do not stand in line behind it.
  const SeenAgain seen(site_, site_.chunks, work);
  if (seen.early()) seen.start(norm_.seen(saved, slot(Slot::normed), parameters));
  work.run_beside();
  auto [dactivated, down_operand] = parallel::linear_input_gradient(
      arriving.wait(), parameters.weight(down_), Direction::outward, site_);
  auto [dpre, activated, dpre_rows] =
      ops::activate_again(s.activation, dactivated, pre, s.ffn_bias && !work.waits());
  dactivated.reset();  // it may share memory with `activated`
  const at::Tensor down_rows = s.ffn_bias ? work.rows(dropped, down_operand) : at::Tensor();
  work.later(
      [this, &parameters, down_rows, down_dy = down_operand, activated = std::move(activated)] {
        parallel::add_weight_gradient(parameters.gradient_sum(down_), down_dy, activated,
                                      Direction::outward, site_);
        if (down_rows.defined()) ops::add_rows(parameters.gradient_sum(down_bias_), down_rows);
      });
  down_operand.reset();
  const at::Tensor up = parameters.fused_weight(up_, inputs());
  parallel::Scattering sum(site_, site_.chunks);
  at::Tensor up_operand = dpre;
  const std::int64_t rows = dpre.size(0) / site_.chunks;
  for (int i = 0; i < site_.chunks; ++i) {
    parallel::Product product = parallel::linear_input_gradient(dpre.narrow(0, i * rows, rows), up,
                                                                Direction::inward, site_);
    sum.add(product.value);
    if (site_.chunks == 1) up_operand = product.operand;
  }
  work.run_beside();
  const auto [dx, made] = norm_.backward(sum.wait(), saved, parameters, work, dy, seen.early());
  const at::Tensor up_rows = s.ffn_bias ? work.rows(dpre_rows, up_operand) : at::Tensor();
  work.later(
      [this, &parameters, up_rows, up_dy = up_operand, seen] {
        parallel::add_weight_gradient(parameters.fused_gradient_sum(up_, inputs()), up_dy,
                                      seen.wait(), Direction::inward, site_);
        if (up_rows.defined())
          ops::add_rows(parameters.fused_gradient_sum(up_bias_, inputs()), up_rows);
      },
      seen.prepare(seen.early() || made.defined() ? made : saved.at(slot(Slot::normed))));
  return dx;
}

}  // namespace braid::models
