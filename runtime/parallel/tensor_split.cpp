#include "runtime/parallel/tensor_split.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "planner/core/error.h"

namespace braid::parallel {

namespace {

constexpr const char* kGather = "gather tokens";
constexpr const char* kScatter = "scatter tokens";

at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows) {
  std::vector<std::int64_t> shape = like.sizes().vec();
  shape[0] = rows;
  return at::empty(shape, like.options());
}

}  // namespace

at::Tensor gather_tokens(const at::Tensor& x, const Site& site) {
  return Gathering(x, site, 1).wait();
}

at::Tensor scatter_sum(const at::Tensor& x, const Site& site) {
  Scattering scattering(site, 1);
  scattering.add(x);
  return scattering.wait();
}

Gathering::Gathering(const at::Tensor& narrow, const Site& site, int chunks) {
  if (site.ulysses() || site.outer->size() == 1) {
    internal_check(chunks == 1, "only what travels passes in chunks");
    parts_.emplace_back(narrow);
    whole_ = narrow;
    return;
  }
  const std::int64_t own = narrow.size(0) / chunks, all = own * site.outer->size();
  std::vector<std::int64_t> shape = narrow.sizes().vec();
  shape[0] = all * chunks;
  whole_ = empty_for(*site.outer, shape, narrow.options());
  for (int i = 0; i < chunks; ++i)
    parts_.push_back(start_all_gather(narrow.narrow(0, i * own, own),
                                      whole_.narrow(0, i * all, all), *site.outer, kGather,
                                      CommKind::tensor));
}

at::Tensor Gathering::wait(int chunk) { return parts_[static_cast<std::size_t>(chunk)].wait(); }

at::Tensor Gathering::wait() {
  for (Arriving& part : parts_) part.wait();
  return std::exchange(whole_, {});
}

void Scattering::add(const at::Tensor& wide) {
  if (site_->ulysses() || site_->outer->size() == 1) {
    internal_check(chunks_ == 1, "only what travels passes in chunks");
    whole_ = wide;
    return;
  }
  const std::int64_t own = wide.size(0) / site_->outer->size();
  if (!whole_.defined()) whole_ = empty_rows(wide, own * chunks_);
  const auto chunk = static_cast<std::int64_t>(parts_.size());
  parts_.push_back(start_reduce_scatter(wide, whole_.narrow(0, chunk * own, own), *site_->outer,
                                        kScatter, CommKind::tensor));
}

at::Tensor Scattering::wait() {
  for (Arriving& part : parts_) part.wait();
  return std::exchange(whole_, {});
}

at::Tensor chunk_of(const at::Tensor& wide, int chunk, const Site& site) {
  if (site.chunks == 1) return wide;
  const at::Tensor by_rank = wide.unflatten(0, {site.outer->size(), -1});
  const std::int64_t own = by_rank.size(1) / site.chunks;
  return by_rank.narrow(1, chunk * own, own);
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
