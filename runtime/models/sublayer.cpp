#include "runtime/models/sublayer.h"

#include <ATen/ops/arange.h>

#include "runtime/ops/linear.h"
#include "runtime/ops/random.h"
#include "runtime/parallel/square.h"
#include "runtime/parallel/tensor_split.h"

namespace braid::models {

at::Tensor TokenDropout::operator()(const at::Tensor& x, const parallel::Feed& feed) const {
  if (probability_ == 0) return x;
  const at::TensorOptions index = at::TensorOptions(at::kLong).device(x.device());
  const std::int64_t tokens = site_->shape.tokens, hidden = site_->shape.hidden;
  const at::Tensor token = parallel::positions_of(site_->narrow_tokens).to(x.device());
  const at::Tensor sample = at::arange(feed.sample, feed.sample + x.size(1), index);
  const at::Tensor channel =
      at::arange(site_->hidden_begin(), site_->hidden_begin() + x.size(2), index);
  const at::Tensor indices =
      sample.view({1, -1, 1}).mul(tokens).add(token.view({-1, 1, 1})).mul(hidden).add(channel);
  return ops::dropout(x, probability_, feed.step_key ^ place_, indices);
}

at::Tensor onto_residual(const at::Tensor& x, const at::Tensor& inner, const at::Tensor& weight,
                         const at::Tensor& bias, const TokenDropout& dropout,
                         const parallel::Feed& feed, const parallel::Site& site) {
  if (!site.megatron() && !site.in_square() && !dropout.drops())
    return ops::linear_onto(x, inner, weight, bias);
  at::Tensor y = parallel::scatter_sum(
      parallel::linear(inner, weight, {}, parallel::Direction::outward, site).value, site);
  if (bias.defined()) y = y.add(bias);
  return x.add(dropout(y, feed));
}

}  // namespace braid::models
