#include "runtime/models/attention.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "runtime/models/alibi.h"
#include "runtime/models/heads.h"
#include "runtime/models/rotary_frequencies.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/norm.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Direction;
using parallel::Init;
using parallel::Parameters;
using parallel::Saved;

namespace {

// How many ways the heads of this rank's matrices are cut; key-value heads may be fewer.
std::int64_t kv_ways(const parallel::Site& site) {
  return std::min<std::int64_t>(site.tensor_split(), site.shape.kv_heads);
}

}  // namespace

Attention::Attention(const parallel::Site& site, Parameters::Declare& declare, int first_slot,
                     TokenDropout dropout)
    : site_(site),
      first_slot_(first_slot),
      dropout_(dropout),
      q_width_(site.shape.heads * site.shape.head_dim / site.tensor_split()),
      kv_width_(site.shape.kv_heads * site.shape.head_dim / kv_ways(site)),
      scale_(site.shape.unscaled ? 1 : 1 / std::sqrt(static_cast<double>(site.shape.head_dim))),
      norm_(site, declare, "attention.norm", slot(Slot::x), slot(Slot::statistics)) {
  const LayerShape& s = site.shape;
  const std::int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const auto matrix = [&](const char* name, std::int64_t rows, CutBy cut) {
    return declare.add({.name = std::string("attention.") + name + ".weight",
                        .shape = {rows, s.hidden},
                        .cut = cut,
                        .deviation = s.init_std});
  };
  const auto bias = [&](const char* name, std::int64_t rows, CutBy cut) {
    return declare.add({.name = std::string("attention.") + name + ".bias",
                        .shape = {rows},
                        .cut = cut,
                        .init = Init::zeros,
                        .decays = false});
  };
  // Neighbours, so that one product makes q, k and v.
  qkv_ = matrix("q", q, CutBy::tensor);
  matrix("k", kv, CutBy::kv_heads);
  matrix("v", kv, CutBy::kv_heads);
  if (s.qkv_bias) {
    qkv_bias_ = bias("q", q, CutBy::tensor);
    bias("k", kv, CutBy::kv_heads);
    bias("v", kv, CutBy::kv_heads);
  }
  if (s.qk_norm) {
    const auto head_norm = [&](const char* name) {
      return declare.add({.name = std::string("attention.") + name + ".weight",
                          .shape = {s.head_dim},
                          .init = Init::ones,
                          .decays = false});
    };
    q_norm_ = head_norm("q_norm");
    k_norm_ = head_norm("k_norm");
  }
  out_ = declare.add({.name = "attention.out.weight",
                      .shape = {s.hidden, q},
                      .cut = CutBy::tensor,
                      .cut_dim = 1,
                      .deviation = s.init_std * s.residual_init_scale});
  if (s.attention_out_bias) out_bias_ = bias("out", s.hidden, CutBy::hidden);
  if (s.attention == AttentionKind::window) windows_ = std::make_unique<Windows>(site, declare);
  if (s.bias_buckets > 0) relative_ = std::make_unique<RelativeBias>(site);
  if (s.alibi) {
    // Ulysses has cut the heads when it comes to scores.
    const std::int64_t ways = site.ulysses() ? site.strategy.tp : site.tensor_split();
    const std::int64_t rank = site.ulysses() ? site.tensor_rank : site.split_rank();
    const std::int64_t heads = s.heads / ways;
    slopes_ = alibi_slopes(s.heads).narrow(0, rank * heads, heads).to(site.numerics.device);
  }
}

const ops::RotaryTable& Attention::rotary_table() const {
  if (!table_.cos.defined()) {
    // Under Ulysses positions are turned ahead of the exchange, on the narrow tokens.
    const parallel::Numerics& n = site_.numerics;
    table_ = ops::rotary_table(parallel::positions_of(site_.inner_tokens()).to(n.device),
                               rotary_frequencies(site_.shape).to(n.device), n.compute);
  }
  return table_;
}

parallel::Product Attention::multiply(const at::Tensor& seen, const Parameters& parameters) const {
  const at::Tensor weight = parameters.fused_weight(qkv_, 3);
  const at::Tensor bias =
      site_.shape.qkv_bias ? parameters.fused_weight(qkv_bias_, 3) : at::Tensor();
  if (site_.chunks == 1)
    return parallel::linear(parallel::gather_tokens(seen, site_), weight, bias, Direction::inward,
                            site_);
  // Attention wants its tokens in order: each chunk's go to their places among them.
  parallel::Gathering wide(seen, site_, site_.chunks);
  const at::Tensor qkv =
      at::empty({seen.size(0) * site_.outer->size(), seen.size(1), weight.size(0)}, seen.options());
  for (int i = 0; i < site_.chunks; ++i)
    ops::linear_into(parallel::chunk_of(qkv, i, site_), wide.wait(i), weight, bias);
  return {qkv, {}};
}

Attention::Heads Attention::project(const at::Tensor& seen, const Parameters& parameters,
                                    Saved& saved) const {
  const LayerShape& s = site_.shape;
  const parallel::Product product = multiply(seen, parameters);
  const at::Tensor& qkv = product.value;
  at::Tensor q = by_head(qkv.narrow(2, 0, q_width_), s.head_dim);
  at::Tensor k = by_head(qkv.narrow(2, q_width_, kv_width_), s.head_dim);
  at::Tensor v = by_head(qkv.narrow(2, q_width_ + kv_width_, kv_width_), s.head_dim);
  if (s.qk_norm) {
    const auto norm = [&](at::Tensor& x, Parameters::Id weight, Slot raw, Slot statistics) {
      x = x.contiguous();
      const ops::RmsNorm normed = ops::rms_norm(x, parameters.weight(weight), s.norm_epsilon);
      saved.keep(slot(raw), x);
      saved.keep(slot(statistics), normed.statistics);
      x = normed.y;
    };
    norm(q, q_norm_, Slot::raw_q, Slot::statistics_q);
    norm(k, k_norm_, Slot::raw_k, Slot::statistics_k);
  }
  if (s.rotary && s.qk_norm) {
    q = ops::rotary(q, rotary_table());
    k = ops::rotary(k, rotary_table());
    v = v.contiguous();  // lets go of the storage it shared with q and k
  } else if (s.rotary) {
    ops::QkvHeads turned =
        ops::rotary_heads(qkv, q_width_ / s.head_dim, s.head_dim, rotary_table());
    q = std::move(turned.q);
    k = std::move(turned.k);
    v = std::move(turned.v);
  }
  return {inward(q), inward(k), inward(v), product.operand};
}

at::Tensor Attention::inward(const at::Tensor& x) const {
  const at::Tensor heads = parallel::to_heads(x, site_);
  return windows_ ? windows_->apart(heads) : heads;
}

at::Tensor Attention::outward(const at::Tensor& x) const {
  return parallel::to_tokens(windows_ ? windows_->together(x) : x, site_);
}

parallel::ScoreBias Attention::bias_of(const parallel::Feed& feed, bool with_gradient) const {
  parallel::ScoreBias bias{.slopes = slopes_};
  // Where there is an encoder, it is the encoder's tokens that are padded.
  if (site_.shape.cross_tokens == 0) bias.lengths = feed.lengths;
  if (relative_) relative_->add_to(bias, with_gradient);
  return bias;
}

ops::Attended Attention::attend(const at::Tensor& q, const parallel::KeysAndValues& kv,
                                const parallel::Feed& feed, const Parameters& parameters) const {
  if (windows_) return windows_->attend(q, kv.k, kv.v, scale_, parameters);
  return parallel::ring_attention(q, kv.k, kv.v, scale_, site_, bias_of(feed));
}

ops::AttentionGradients Attention::attend_backward(const at::Tensor& dout, const at::Tensor& q,
                                                   const parallel::KeysAndValues& kv,
                                                   const ops::Attended& attended,
                                                   const parallel::Feed& feed,
                                                   Parameters& parameters,
                                                   parallel::WeightWork& work) {
  if (windows_) return windows_->backward(dout, q, kv.k, kv.v, attended, scale_, parameters, work);
  const parallel::ScoreBias bias = bias_of(feed, /*with_gradient=*/true);
  ops::AttentionGradients gradients = parallel::ring_attention_backward(
      dout, q, kv.k, kv.v, attended.out, attended.lse, scale_, site_, bias);
  if (relative_) work.later([this, bias] { relative_->take_gradient(bias); });
  return gradients;
}

at::Tensor Attention::forward(const at::Tensor& x, const parallel::Feed& feed,
                              Parameters& parameters, Saved& saved) {
  const Norm::Normed normed = norm_.forward(x, parameters);
  const Heads heads = project(normed.y, parameters, saved);
  const ops::Attended attended =
      attend(heads.q, parallel::gather_rows({heads.k, heads.v}, site_), feed, parameters);
  saved.keep(slot(Slot::x), x);
  if (!norm_.is_cheap())
    saved.keep(slot(Slot::normed), site_.as_published() ? heads.operand : normed.y);
  saved.keep(slot(Slot::statistics), normed.statistics);
  saved.keep(slot(Slot::q), heads.q);
  saved.keep(slot(Slot::k), heads.k);
  saved.keep(slot(Slot::v), heads.v);
  saved.keep(slot(Slot::out), attended.out);
  saved.keep(slot(Slot::lse), attended.lse);

  const at::Tensor tokens = flat(outward(attended.out));
  return norm_.behind(
      onto_residual(x, tokens, parameters.weight(out_),
                    site_.shape.attention_out_bias ? parameters.weight(out_bias_) : at::Tensor(),
                    dropout_, feed, site_),
      parameters, saved);
}

at::Tensor Attention::backward(const at::Tensor& dresult, const parallel::Feed& feed,
                               Parameters& parameters, Saved& saved, parallel::WeightWork& work) {
  const LayerShape& s = site_.shape;
  const at::Tensor dy = norm_.behind_backward(dresult, parameters, saved, work);
  const at::Tensor dropped = dropout_(dy, feed);
  parallel::Gathering arriving(dropped, site_, 1);
  work.run_beside();
  const at::Tensor& q = saved.at(slot(Slot::q));
  const parallel::KeysAndValues kv =
      parallel::gather_rows({saved.at(slot(Slot::k)), saved.at(slot(Slot::v))}, site_);
  const ops::Attended attended =
      saved.has(slot(Slot::out))
          ? ops::Attended{saved.at(slot(Slot::out)), saved.at(slot(Slot::lse))}
          : attend(q, kv, feed, parameters);

  auto [dtokens, out_operand] = parallel::linear_input_gradient(
      arriving.wait(), parameters.weight(out_), Direction::outward, site_);
  const SeenAgain seen(site_, 1, work);
  if (seen.early()) seen.start(norm_.seen(saved, slot(Slot::normed), parameters));
  const at::Tensor out_rows = s.attention_out_bias ? work.rows(dropped, out_operand) : at::Tensor();
  work.later([this, &parameters, out_rows, out_dy = out_operand, out = attended.out] {
    parallel::add_weight_gradient(parameters.gradient_sum(out_), out_dy, flat(outward(out)),
                                  Direction::outward, site_);
    if (out_rows.defined()) ops::add_rows(parameters.gradient_sum(out_bias_), out_rows);
  });
  out_operand.reset();

  at::Tensor dq, dk, dv;
  {
    const ops::AttentionGradients grads = attend_backward(inward(by_head(dtokens, s.head_dim)), q,
                                                          kv, attended, feed, parameters, work);
    const parallel::KeysAndValues dkv = parallel::scatter_rows({grads.dk, grads.dv}, site_);
    dq = outward(grads.dq);
    dk = outward(dkv.k);
    dv = outward(dkv.v);
  }
  dtokens.reset();
  if (s.rotary && s.qk_norm) {
    dq = ops::rotary_backward(dq, rotary_table());
    dk = ops::rotary_backward(dk, rotary_table());
  }
  if (s.qk_norm) {
    const auto norm = [&](at::Tensor& dx, Parameters::Id id, Slot raw, Slot statistics) {
      const at::Tensor weight = parameters.weight(id);
      const ops::NormGradients made =
          ops::rms_norm_backward(dx, saved.at(slot(raw)), saved.at(slot(statistics)), weight);
      dx = made.dx;
      work.later([&parameters, id, rows = work.rows(made.rows)] {
        ops::add_rows(parameters.gradient_sum(id), rows);
      });
    };
    norm(dq, q_norm_, Slot::raw_q, Slot::statistics_q);
    norm(dk, k_norm_, Slot::raw_k, Slot::statistics_k);
  }
  const ops::RotaryTable* turned = s.rotary && !s.qk_norm ? &rotary_table() : nullptr;
  const auto [dqkv, dqkv_rows] =
      ops::heads_backward({dq, dk, dv}, turned, s.qkv_bias && !work.waits());
  for (at::Tensor* apart : {&dq, &dk, &dv}) apart->reset();
  parallel::Scattering sum(site_, site_.chunks);
  at::Tensor qkv_operand = dqkv;
  for (int i = 0; i < site_.chunks; ++i) {
    const parallel::Product product =
        parallel::linear_input_gradient(parallel::chunk_of(dqkv, i, site_),
                                        parameters.fused_weight(qkv_, 3), Direction::inward, site_);
    sum.add(product.value);
    if (site_.chunks == 1) qkv_operand = product.operand;
  }
  work.run_beside();
  const auto [dx, made] = norm_.backward(sum.wait(), saved, parameters, work, dy, seen.early());
  const at::Tensor bias_rows = s.qkv_bias ? work.rows(dqkv_rows, qkv_operand) : at::Tensor();
  work.later(
      [this, &parameters, bias_rows, qkv_dy = qkv_operand, seen] {
        parallel::add_weight_gradient(parameters.fused_gradient_sum(qkv_, 3), qkv_dy, seen.wait(),
                                      Direction::inward, site_);
        if (bias_rows.defined())
          ops::add_rows(parameters.fused_gradient_sum(qkv_bias_, 3), bias_rows);
      },
      seen.prepare(seen.early() || made.defined() ? made : saved.at(slot(Slot::normed))));
  return dx;
}

void Attention::forget_cheap(Saved& saved) {
  saved.drop(slot(Slot::out));
  saved.drop(slot(Slot::lse));
}

}  // namespace braid::models
