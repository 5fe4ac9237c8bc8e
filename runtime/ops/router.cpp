#include "runtime/ops/router.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

#include "runtime/ops/precision.h"

namespace braid::ops {

namespace {

at::Tensor sum_of_row(const at::Tensor& x) {
  return at::sum(x, at::IntArrayRef{1}, /*keepdim=*/true);
}

}  // namespace

Routed route(const at::Tensor& logits, std::int64_t per_token) {
  const at::Tensor probabilities =
      at::_softmax(logits.to(wide(logits.scalar_type())), 1, /*half_to_float=*/false);
  if (logits.is_meta()) {
    const std::int64_t rows = logits.size(0);
    return {probabilities, at::empty({rows, per_token}, logits.options().dtype(at::kLong)),
            at::empty({rows, per_token}, probabilities.options())};
  }
  // topk leaves the order of equals open; a stable sort does not.
  const at::Tensor order =
      std::get<1>(at::sort(probabilities, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  at::Tensor chosen = order.narrow(1, 0, per_token).contiguous();
  return {probabilities, chosen, routed_weights(probabilities, chosen)};
}

at::Tensor routed_weights(const at::Tensor& probabilities, const at::Tensor& chosen) {
  const at::Tensor best = at::gather(probabilities, 1, chosen);
  return at::div(best, sum_of_row(best));
}

at::Tensor route_backward(const at::Tensor& dweights, const at::Tensor& probabilities,
                          const at::Tensor& chosen) {
  const at::Tensor best = at::gather(probabilities, 1, chosen);
  const at::Tensor sum = sum_of_row(best);
  const at::Tensor dw = dweights.to(probabilities.scalar_type());
  const at::Tensor dbest = at::sub(dw, sum_of_row(at::mul(dw, best)).div_(sum)).div_(sum);
  // p·(dp - Σp·dp), where only the chosen have a dp; Σp·dp is 0 for weights that sum to one.
  return at::zeros_like(probabilities).scatter_(1, chosen, at::mul(best, dbest));
}

}  // namespace braid::ops
