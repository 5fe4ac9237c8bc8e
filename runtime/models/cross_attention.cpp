#include "runtime/models/cross_attention.h"

#include <ATen/ops/cat.h>

#include <cmath>

#include "runtime/models/heads.h"
#include "runtime/ops/linear.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Parameters;
using parallel::Saved;

namespace {

parallel::Site ring_site(const parallel::Site& site) {
  parallel::Site ring = *site.beside;
  ring.shape.attention = AttentionKind::bidirectional;
  ring.shape.window = 0;
  ring.wide_tokens = site.wide_tokens;
  return ring;
}

}  // namespace

CrossAttention::CrossAttention(const parallel::Site& site, Parameters::Declare& declare,
                               int first_slot, TokenDropout dropout)
    : site_(site),
      ring_(ring_site(site)),
      first_slot_(first_slot),
      dropout_(dropout),
      scale_(site.shape.unscaled ? 1 : 1 / std::sqrt(static_cast<double>(site.shape.head_dim))),
      norm_(site, declare, "cross.norm", slot(Slot::x), slot(Slot::statistics)) {
  const LayerShape& s = site.shape;
  const std::int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const auto matrix = [&](const char* name, std::int64_t rows, CutBy cut) {
    return declare.add({.name = std::string("cross.") + name + ".weight",
                        .shape = {rows, s.hidden},
                        .cut = cut,
                        .deviation = s.init_std});
  };
  q_ = matrix("q", q, CutBy::tensor);
  kv_ = matrix("k", kv, CutBy::kv_heads);  // neighbours, so that one product makes both
  matrix("v", kv, CutBy::kv_heads);
  out_ = declare.add({.name = "cross.out.weight",
                      .shape = {s.hidden, q},
                      .cut = CutBy::tensor,
                      .cut_dim = 1,
                      .deviation = s.init_std * s.residual_init_scale});
}

ops::Attended CrossAttention::attend(const at::Tensor& q, const parallel::KeysAndValues& kv,
                                     const parallel::Feed& feed) const {
  return parallel::ring_attention(q, kv.k, kv.v, scale_, ring_, {.lengths = feed.lengths});
}

at::Tensor CrossAttention::forward(const at::Tensor& x, const parallel::Feed& feed,
                                   Parameters& parameters, Saved& saved) {
  const std::int64_t head_dim = site_.shape.head_dim;
  const Norm::Normed normed = norm_.forward(x, parameters);
  const at::Tensor q = parallel::to_heads(
      by_head(ops::linear(parallel::gather_tokens(normed.y, site_), parameters.weight(q_)),
              head_dim),
      site_);
  const at::Tensor kv = ops::linear(parallel::gather_tokens(feed.side->value, site_),
                                    parameters.fused_weight(kv_, 2));
  const std::int64_t width = kv.size(2) / 2;
  const auto heads = [&](std::int64_t first) {
    return parallel::to_heads(by_head(kv.narrow(2, first, width), head_dim), site_);
  };
  const parallel::KeysAndValues seen{heads(0), heads(width)};
  const ops::Attended attended = attend(q, seen, feed);
  saved.keep(slot(Slot::x), x);
  if (!norm_.is_cheap()) saved.keep(slot(Slot::normed), normed.y);
  saved.keep(slot(Slot::statistics), normed.statistics);
  saved.keep(slot(Slot::q), q);
  saved.keep(slot(Slot::k), seen.k);
  saved.keep(slot(Slot::v), seen.v);
  saved.keep(slot(Slot::out), attended.out);
  saved.keep(slot(Slot::lse), attended.lse);
  return onto_residual(x, flat(parallel::to_tokens(attended.out, site_)), parameters.weight(out_),
                       {}, dropout_, feed, site_);
}

at::Tensor CrossAttention::backward(const at::Tensor& dy, const parallel::Feed& feed,
                                    Parameters& parameters, Saved& saved,
                                    parallel::WeightWork& work) {
  const std::int64_t head_dim = site_.shape.head_dim;
  parallel::Gathering arriving(dropout_(dy, feed), site_, 1);
  work.run_beside();
  const at::Tensor& q = saved.at(slot(Slot::q));
  const parallel::KeysAndValues kv{saved.at(slot(Slot::k)), saved.at(slot(Slot::v))};
  const ops::Attended attended =
      saved.has(slot(Slot::out))
          ? ops::Attended{saved.at(slot(Slot::out)), saved.at(slot(Slot::lse))}
          : attend(q, kv, feed);

  at::Tensor wide_dy = arriving.wait();
  const at::Tensor dtokens = ops::linear_input_gradient(wide_dy, parameters.weight(out_));
  const SeenAgain seen(site_, 1, work), encoded(site_, 1, work);
  if (seen.early()) {
    seen.start(norm_.seen(saved, slot(Slot::normed), parameters));
    encoded.start(feed.side->value);
  }
  work.later([this, &parameters, wide_dy = std::move(wide_dy), out = attended.out] {
    ops::add_weight_gradient(parameters.gradient_sum(out_), wide_dy,
                             flat(parallel::to_tokens(out, site_)));
  });

  const ops::AttentionGradients grads = parallel::ring_attention_backward(
      parallel::to_heads(by_head(dtokens, head_dim), site_), q, kv.k, kv.v, attended.out,
      attended.lse, scale_, ring_, {.lengths = feed.lengths});
  const at::Tensor dq = flat(parallel::to_tokens(grads.dq, site_));
  const at::Tensor dkv = at::cat(
      {flat(parallel::to_tokens(grads.dk, site_)), flat(parallel::to_tokens(grads.dv, site_))}, 2);
  parallel::Scattering dencoded(site_, 1), dnormed(site_, 1);
  dencoded.add(ops::linear_input_gradient(dkv, parameters.fused_weight(kv_, 2)));
  dnormed.add(ops::linear_input_gradient(dq, parameters.weight(q_)));
  work.run_beside();
  at::Tensor& sum = feed.side->gradient;
  sum = sum.defined() ? sum.add(dencoded.wait()) : dencoded.wait();
  const auto [dx, made] = norm_.backward(dnormed.wait(), saved, parameters, work, dy, seen.early());
  work.later([this, &parameters, dq,
              seen] { ops::add_weight_gradient(parameters.gradient_sum(q_), dq, seen.wait()); },
             seen.prepare(seen.early() || made.defined() ? made : saved.at(slot(Slot::normed))));
  work.later(
      [this, &parameters, dkv, encoded] {
        ops::add_weight_gradient(parameters.fused_gradient_sum(kv_, 2), dkv, encoded.wait());
      },
      encoded.prepare(feed.side->value));
  return dx;
}

void CrossAttention::forget_cheap(Saved& saved) {
  saved.drop(slot(Slot::out));
  saved.drop(slot(Slot::lse));
}

}  // namespace braid::models
