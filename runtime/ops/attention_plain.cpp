#include <ATen/ops/arange.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include <limits>

#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/precision.h"

namespace braid::ops {

namespace {

// [batch, heads, tokens, head_dim] in wide precision; heads of k and v repeated for their group.
at::Tensor wide_heads(const at::Tensor& x, std::int64_t heads) {
  const at::Tensor exact = x.to(wide(x.scalar_type())).permute({1, 2, 0, 3});
  return exact.size(1) == heads ? exact : exact.repeat_interleave(heads / exact.size(1), 1);
}

constexpr double kNothing = -std::numeric_limits<double>::infinity();

at::Tensor scores(const at::Tensor& q, const at::Tensor& k, double scale, const Band& band,
                  const at::Tensor& added) {
  at::Tensor result = at::matmul(q, k.transpose(-1, -2)).mul_(scale);
  if (added.defined()) result.add_(added);
  return result.masked_fill_(hidden_pairs(band, q.size(2), k.size(2), q.device()), kNothing);
}

// Softmax weights, in place of the scores. Against a 0 in place of the -inf of no keys the weights
// are exp(-inf) = 0, never NaN.
at::Tensor weights_of(const at::Tensor& scores, const at::Tensor& lse) {
  return scores.sub_(lse.masked_fill(lse.eq(kNothing), 0).unsqueeze(-1)).exp_();
}

// Back to the layout and precision of `like`, summed over the heads that shared one of its.
at::Tensor as_input(const at::Tensor& gradient, const at::Tensor& like) {
  const at::Tensor tokens_first = gradient.permute({2, 0, 1, 3});
  if (like.size(2) == tokens_first.size(2)) return tokens_first.to(like.scalar_type());
  return at::sum(tokens_first.unflatten(2, {like.size(2), -1}), at::IntArrayRef{3})
      .to(like.scalar_type());
}

}  // namespace

bool sees_all(const Band& band, std::int64_t queries, std::int64_t keys) {
  return band.before >= queries - 1 && band.after >= keys - 1;
}

bool is_lower_triangle(const Band& band, std::int64_t queries) {
  return band.before >= queries - 1 && band.after == 0;
}

at::Tensor hidden_pairs(const Band& band, std::int64_t queries, std::int64_t keys,
                        at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor back =
      at::sub(at::arange(queries, options).unsqueeze(1), at::arange(keys, options));
  return back.gt(band.before).logical_or_(back.lt(-band.after));
}

Attended plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         double scale, const Band& band, const at::Tensor& added) {
  const std::int64_t heads = q.size(2);
  const at::Tensor pairs = scores(wide_heads(q, heads), wide_heads(k, heads), scale, band, added);
  const at::Tensor lse = at::logsumexp(pairs, at::IntArrayRef{-1});
  const at::Tensor weights = weights_of(pairs, lse);
  return {as_input(at::matmul(weights, wide_heads(v, heads)), q), lse};
}

AttentionGradients plain_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                            const at::Tensor& k, const at::Tensor& v,
                                            const at::Tensor& out, const at::Tensor& lse,
                                            double scale, const Band& band, const at::Tensor& added,
                                            at::Tensor* dadded) {
  const std::int64_t heads = q.size(2);
  const at::Tensor queries = wide_heads(q, heads);
  const at::Tensor keys = wide_heads(k, heads);
  const at::Tensor upper = wide_heads(dout, heads);
  const at::Tensor weights = weights_of(scores(queries, keys, scale, band, added), lse);
  const at::Tensor dv = at::matmul(weights.transpose(-1, -2), upper);
  const at::Tensor along =
      at::sum(at::mul(upper, wide_heads(out, heads)), at::IntArrayRef{-1}, /*keepdim=*/true);
  at::Tensor dscores =
      at::matmul(upper, wide_heads(v, heads).transpose(-1, -2)).sub_(along).mul_(weights);
  if (dadded != nullptr) *dadded = scale == 1 ? dscores : dscores.clone();
  if (scale != 1) dscores.mul_(scale);
  return {as_input(at::matmul(dscores, keys), q),
          as_input(at::matmul(dscores.transpose(-1, -2), queries), k), as_input(dv, v)};
}

}  // namespace braid::ops
