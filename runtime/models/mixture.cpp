#include "runtime/models/mixture.h"

#include <ATen/TensorIndexing.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <fmt/core.h>

#include "runtime/ops/activation.h"
#include "runtime/ops/fp8.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/router.h"
#include "runtime/parallel/expert_dispatch.h"

namespace braid::models {

using parallel::CutBy;
using parallel::ExpertDispatch;
using parallel::Parameters;
using parallel::Saved;

namespace {

// The order that sorts (row, choice) pairs by expert, and its inverse.
struct Order {
  at::Tensor sorted, inverse;
};

Order order_of(const at::Tensor& chosen) {
  const at::Tensor sorted = at::argsort(chosen.flatten(), /*stable=*/true, 0, false);
  return {sorted, at::argsort(sorted, /*stable=*/true, 0, false)};
}

// Rows for each expert. Without data, as even as they can be.
std::vector<std::int64_t> counts_of(const at::Tensor& chosen, std::int64_t experts) {
  std::vector<std::int64_t> counts;
  counts.reserve(static_cast<std::size_t>(experts));
  if (chosen.is_meta()) {
    for (std::int64_t e = 0; e < experts; ++e)
      counts.push_back(chosen.numel() * (e + 1) / experts - chosen.numel() * e / experts);
    return counts;
  }
  const at::Tensor counted = at::bincount(chosen.flatten(), {}, experts).cpu();
  const auto* begin = counted.data_ptr<std::int64_t>();
  return {begin, begin + experts};
}

// Calls visit(expert, first row, rows) for every local expert that has some.
template <class Visit>
void for_each_expert(const std::vector<std::int64_t>& rows, Visit visit) {
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e] > 0) visit(e, begin, rows[e]);
    begin += rows[e];
  }
}

std::int64_t total(const std::vector<std::int64_t>& rows) {
  std::int64_t sum = 0;
  for (const std::int64_t n : rows) sum += n;
  return sum;
}

}  // namespace

Mixture::Mixture(const parallel::Site& site, Parameters::Declare& declare, int first_slot,
                 TokenDropout dropout)
    : site_(site),
      first_slot_(first_slot),
      dropout_(dropout),
      local_experts_(site.shape.experts / site.strategy.ep),
      norm_(site, declare, "ffn.norm") {
  const LayerShape& s = site.shape;
  router_ = declare.add(
      {.name = "ffn.router.weight", .shape = {s.experts, s.hidden}, .deviation = s.init_std});
  for (std::int64_t local = 0; local < local_experts_; ++local) {
    const auto expert = static_cast<int>(site.expert_rank * local_experts_ + local);
    const auto up = [&](const char* name) {
      return declare.add({.name = fmt::format("ffn.experts.{}.{}.weight", expert, name),
                          .shape = {s.ffn, s.hidden},
                          .cut = CutBy::tensor,
                          .deviation = s.init_std,
                          .expert = expert});
    };
    const bool gated = is_gated(s.activation);
    up_.push_back(up(gated ? "gate" : "up"));
    if (gated) up("up");
    down_.push_back(declare.add({.name = fmt::format("ffn.experts.{}.down.weight", expert),
                                 .shape = {s.hidden, s.ffn},
                                 .cut = CutBy::tensor,
                                 .cut_dim = 1,
                                 .deviation = s.init_std * s.residual_init_scale,
                                 .expert = expert}));
  }
}

at::Tensor Mixture::forward(const at::Tensor& x, const parallel::Feed& feed, Parameters& parameters,
                            Saved& saved) {
  const LayerShape& s = site_.shape;
  const std::int64_t each = s.experts_per_token;
  const Norm::Normed normed = norm_.forward(x, parameters);
  const at::Tensor rows = normed.y.reshape({-1, s.hidden});
  const at::Tensor scores = [&] {
    const ops::Fp8Scope exact(false);  // who gets a token hangs on little
    return ops::linear(rows, parameters.weight(router_));
  }();
  const ops::Routed routed = ops::route(scores, each);
  const Order order = order_of(routed.chosen);
  const ExpertDispatch dispatch(counts_of(routed.chosen, s.experts), site_);

  const at::Tensor arrived = dispatch.to_experts(rows.index({order.sorted.div(each, "floor")}));
  const at::Tensor inputs_all = dispatch.gather(arrived);
  const std::vector<std::int64_t> counts = dispatch.rows_per_expert();
  const std::int64_t width = s.ffn / site_.tensor_split();
  at::Tensor pre = at::empty({total(counts), inputs() * width}, x.options());
  for_each_expert(counts, [&](std::size_t e, std::int64_t begin, std::int64_t n) {
    pre.narrow(0, begin, n)
        .copy_(
            ops::linear(inputs_all.narrow(0, begin, n), parameters.fused_weight(up_[e], inputs())));
  });
  const at::Tensor activated = ops::activate(s.activation, pre);
  at::Tensor outputs_all = at::empty({total(counts), s.hidden}, x.options());
  for_each_expert(counts, [&](std::size_t e, std::int64_t begin, std::int64_t n) {
    outputs_all.narrow(0, begin, n)
        .copy_(ops::linear(activated.narrow(0, begin, n), parameters.weight(down_[e])));
  });
  const at::Tensor outputs = dispatch.from_experts(dispatch.scatter_sum(outputs_all))
                                 .index({order.inverse})
                                 .view({rows.size(0), each, s.hidden});
  saved.keep(slot(Slot::x), x);
  saved.keep(slot(Slot::normed), normed.y);
  saved.keep(slot(Slot::statistics), normed.statistics);
  saved.keep(slot(Slot::probabilities), routed.probabilities);
  saved.keep(slot(Slot::chosen), routed.chosen);
  saved.keep(slot(Slot::arrived), arrived);
  saved.keep(slot(Slot::pre), pre);
  saved.keep(slot(Slot::activated), activated);
  saved.keep(slot(Slot::outputs), outputs);
  saved.counts = dispatch.route();

  const at::Tensor weights = routed.weights.to(x.scalar_type()).unsqueeze(2);
  const at::Tensor y = outputs.mul(weights).sum(1).view(x.sizes());
  return x.add(dropout_(y, feed));
}

at::Tensor Mixture::backward(const at::Tensor& dy, const parallel::Feed& feed,
                             Parameters& parameters, Saved& saved, parallel::WeightWork& work) {
  work.run_beside();  // what follows is not begun ahead
  const LayerShape& s = site_.shape;
  const std::int64_t each = s.experts_per_token;
  const at::Tensor& chosen = saved.at(slot(Slot::chosen));
  const at::Tensor& probabilities = saved.at(slot(Slot::probabilities));
  const at::Tensor& pre = saved.at(slot(Slot::pre));
  const at::Tensor activated = saved.has(slot(Slot::activated)) ? saved.at(slot(Slot::activated))
                                                                : ops::activate(s.activation, pre);
  const Order order = order_of(chosen);
  const ExpertDispatch dispatch = ExpertDispatch::again(saved.counts, site_);
  const std::vector<std::int64_t> counts = dispatch.rows_per_expert();

  const at::Tensor drows = dropout_(dy, feed).reshape({-1, 1, s.hidden});
  const at::Tensor dweights =
      drows.to(probabilities.scalar_type()).mul(saved.at(slot(Slot::outputs))).sum(2);
  const at::Tensor weights =
      ops::routed_weights(probabilities, chosen).to(dy.scalar_type()).unsqueeze(2);
  const at::Tensor doutputs = dispatch.gather(
      dispatch.to_experts(drows.mul(weights).view({-1, s.hidden}).index({order.sorted})));

  at::Tensor dactivated = at::empty(activated.sizes(), activated.options());
  for_each_expert(counts, [&](std::size_t e, std::int64_t begin, std::int64_t n) {
    dactivated.narrow(0, begin, n)
        .copy_(
            ops::linear_input_gradient(doutputs.narrow(0, begin, n), parameters.weight(down_[e])));
  });
  const at::Tensor dpre = ops::activate_backward(s.activation, dactivated, pre);
  at::Tensor dinputs = at::empty({total(counts), s.hidden}, dy.options());
  for_each_expert(counts, [&](std::size_t e, std::int64_t begin, std::int64_t n) {
    dinputs.narrow(0, begin, n)
        .copy_(ops::linear_input_gradient(dpre.narrow(0, begin, n),
                                          parameters.fused_weight(up_[e], inputs())));
  });
  work.later([this, &parameters, route = saved.counts, counts, doutputs, activated, dpre,
              arrived = saved.at(slot(Slot::arrived))] {
    const at::Tensor inputs_all = ExpertDispatch::again(route, site_).gather(arrived);
    for_each_expert(counts, [&](std::size_t e, std::int64_t begin, std::int64_t n) {
      ops::add_weight_gradient(parameters.gradient_sum(down_[e]), doutputs.narrow(0, begin, n),
                               activated.narrow(0, begin, n));
      ops::add_weight_gradient(parameters.fused_gradient_sum(up_[e], inputs()),
                               dpre.narrow(0, begin, n), inputs_all.narrow(0, begin, n));
    });
  });
  at::Tensor dnormed = dispatch.from_experts(dispatch.scatter_sum(dinputs))
                           .index({order.inverse})
                           .view({-1, each, s.hidden})
                           .sum(1);
  const at::Tensor dlogits =
      ops::route_backward(dweights, probabilities, chosen).to(dy.scalar_type());
  {
    const ops::Fp8Scope exact(false);
    dnormed.add_(ops::linear_input_gradient(dlogits, parameters.weight(router_)));
  }
  work.later([this, &parameters, dlogits, normed = saved.at(slot(Slot::normed))] {
    const ops::Fp8Scope exact(false);
    ops::add_weight_gradient(parameters.gradient_sum(router_), dlogits,
                             normed.reshape({-1, site_.shape.hidden}));
  });
  return norm_.backward(dnormed.view(dy.sizes()), saved.at(slot(Slot::x)),
                        saved.at(slot(Slot::statistics)), parameters, work, dy);
}

void Mixture::forget_cheap(Saved& saved) { saved.drop(slot(Slot::activated)); }

}  // namespace braid::models
