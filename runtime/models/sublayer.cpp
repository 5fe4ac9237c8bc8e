#include "runtime/models/sublayer.h"

#include <ATen/ops/arange.h>

#include "runtime/ops/linear.h"
#include "runtime/ops/random.h"
#include "runtime/parallel/square.h"

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
  parallel::Scattering sum(site, site.chunks);
  for (int i = 0; i < site.chunks; ++i)
    sum.add(parallel::linear(parallel::chunk_of(inner, i, site), weight, {},
                             parallel::Direction::outward, site)
                .value);
  return onto_residual(x, sum, bias, dropout, feed);
}

at::Tensor onto_residual(const at::Tensor& x, parallel::Scattering& sum, const at::Tensor& bias,
                         const TokenDropout& dropout, const parallel::Feed& feed) {
  at::Tensor y = sum.wait();
  if (bias.defined()) y = y.add(bias);
  return x.add(dropout(y, feed));
}

std::function<void()> SeenAgain::prepare(const at::Tensor& narrow) const {
  if (early_) return {};
  return [seen = *this, narrow] { seen.start(narrow); };
}

}  // namespace braid::models
