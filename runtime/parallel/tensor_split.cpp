#include "runtime/parallel/tensor_split.h"

#include "runtime/parallel/collectives.h"

namespace braid::parallel {

at::Tensor gather_tokens(const at::Tensor& x, const Site& site) {
  return site.ulysses() ? x : all_gather(x, *site.outer, "gather tokens", CommKind::tensor);
}

at::Tensor scatter_sum(const at::Tensor& x, const Site& site) {
  return site.ulysses() ? x : reduce_scatter(x, *site.outer, "scatter tokens", CommKind::tensor);
}

at::Tensor to_heads(const at::Tensor& x, const Site& site) {
  if (!site.ulysses()) return x;
  const std::int64_t ways = site.strategy.tp;
  const std::int64_t tokens = x.size(0), samples = x.size(1), heads = x.size(2) / ways;
  const at::Tensor by_rank =
      x.reshape({tokens, samples, ways, heads, x.size(3)}).permute({2, 0, 1, 3, 4});
  const at::Tensor exchanged =
      all_to_all(by_rank.contiguous(), *site.tensor, "tokens to heads", {}, {}, CommKind::tensor);
  return exchanged.view({ways * tokens, samples, heads, x.size(3)});
}

at::Tensor to_tokens(const at::Tensor& x, const Site& site) {
  if (!site.ulysses()) return x;
  const std::int64_t ways = site.strategy.tp;
  const std::int64_t tokens = x.size(0) / ways, samples = x.size(1), heads = x.size(2);
  const at::Tensor by_rank = x.reshape({ways, tokens, samples, heads, x.size(3)});
  const at::Tensor exchanged =
      all_to_all(by_rank.contiguous(), *site.tensor, "heads to tokens", {}, {}, CommKind::tensor);
  return exchanged.permute({1, 2, 0, 3, 4}).reshape({tokens, samples, ways * heads, x.size(3)});
}

}  // namespace braid::parallel
