#include "runtime/models/patch_merging.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "runtime/ops/linear.h"
#include "runtime/ops/reorder.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/tensor_split.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Feed;
using parallel::Saved;
using parallel::Site;

namespace {

constexpr int kMerged = 0, kStatistics = 1;  // slots

// Where a token stands in the merged image: four to a merged token, the upper left one, the one
// below it, the upper right one, the one below that.
std::int64_t place_of(std::int64_t token, std::int64_t side) {
  const std::int64_t row = token / side, column = token % side;
  return 4 * (row / 2 * (side / 2) + column / 2) + 2 * (column % 2) + row % 2;
}

// A rank's tokens by their places.
struct Placed {
  std::int64_t place, token;
  auto operator<=>(const Placed&) const = default;
};
std::vector<Placed> tokens_by_place(std::int64_t tokens, int rank, int ranks) {
  const auto side = std::llround(std::sqrt(static_cast<double>(tokens)));
  const std::int64_t each = tokens / ranks;
  std::vector<Placed> all;
  all.reserve(static_cast<std::size_t>(each));
  for (std::int64_t token = 0; token < each; ++token)
    all.push_back({place_of(rank * each + token, side), token});
  std::ranges::sort(all);
  return all;
}

// Columns of all tokens → all columns of this rank's tokens, and back.
at::Tensor columns_to_tokens(const at::Tensor& x, const Site& site) {
  if (!site.megatron()) return x;
  const std::int64_t ways = site.strategy.tp, tokens = x.size(0) / ways, samples = x.size(1);
  return parallel::all_to_all(x.contiguous(), *site.tensor, "columns to tokens", {}, {},
                              CommKind::tensor)
      .view({ways, tokens, samples, x.size(2)})
      .permute({1, 2, 0, 3})
      .reshape({tokens, samples, -1});
}
at::Tensor tokens_to_columns(const at::Tensor& x, const Site& site) {
  if (!site.megatron()) return x;
  const std::int64_t ways = site.strategy.tp, tokens = x.size(0), samples = x.size(1);
  const at::Tensor by_rank = x.view({tokens, samples, ways, -1}).permute({2, 0, 1, 3});
  return parallel::all_to_all(by_rank.contiguous(), *site.tensor, "tokens to columns", {}, {},
                              CommKind::tensor)
      .view({ways * tokens, samples, -1});
}

}  // namespace

Neighbours::Neighbours(const Site& site) : site_(site) {
  const std::int64_t tokens = site.shape.tokens;
  const int ranks = site.strategy.tp;
  const std::int64_t each = tokens / ranks;
  const bool stay = merges_in_place(site.shape, ranks);
  const auto indices = [&](const std::vector<std::int64_t>& list) {
    return at::tensor(list, at::kLong);
  };
  std::vector<std::int64_t> leaving;
  if (!stay) sent_.assign(static_cast<std::size_t>(ranks), 0);
  for (const Placed& one : tokens_by_place(tokens, site.tensor_rank, ranks)) {
    leaving.push_back(one.token);
    if (!stay) ++sent_[static_cast<std::size_t>(one.place / each)];
  }
  const at::Device device = site.numerics.device;
  leaving_ = indices(leaving).to(device);
  home_ = indices(leaving).argsort().to(device);
  if (stay) return;
  std::vector<std::int64_t> places;  // in the order of arriving
  for (int rank = 0; rank < ranks; ++rank) {
    const auto before = static_cast<std::int64_t>(places.size());
    for (const Placed& one : tokens_by_place(tokens, rank, ranks))
      if (one.place / each == site.tensor_rank) places.push_back(one.place);
    received_.push_back(static_cast<std::int64_t>(places.size()) - before);
  }
  const at::Tensor order = indices(places).argsort();
  arriving_ = order.to(device);
  outgoing_ = order.argsort().to(device);
}

at::Tensor Neighbours::beside_each_other(const at::Tensor& x) const {
  at::Tensor tokens = ops::reordered(x, leaving_);
  if (!sent_.empty())
    tokens = ops::reordered(parallel::all_to_all(tokens, *site_.tensor, "neighbours", sent_,
                                                 received_, CommKind::tensor),
                            arriving_);
  return tokens.unflatten(0, {-1, 4}).transpose(1, 2).flatten(2).contiguous();
}

at::Tensor Neighbours::apart(const at::Tensor& x) const {
  at::Tensor tokens = x.unflatten(2, {4, -1}).transpose(1, 2).flatten(0, 1);
  if (!sent_.empty())
    tokens = parallel::all_to_all(ops::reordered(tokens, outgoing_), *site_.tensor,
                                  "neighbours' gradient", received_, sent_, CommKind::tensor);
  return ops::reordered(tokens, home_);
}

PatchMerging::PatchMerging(std::string name, Site place)
    : Layer(std::move(name), std::move(place)), neighbours_(site()) {
  const LayerShape& s = site().shape;
  parallel::Parameters::Declare declare(site());
  norm_ = std::make_unique<Norm>(site(), declare, "norm", /*copies=*/4);
  reduction_ = declare.add({.name = "reduction.weight",
                            .shape = {s.merge_outputs, 4 * s.hidden},
                            .cut = CutBy::tensor,
                            .deviation = s.init_std});
  own(declare.make(this->name()));
}

at::Tensor PatchMerging::forward(const at::Tensor& x, const Feed&, Saved& saved) {
  const at::Tensor merged = neighbours_.beside_each_other(x);
  const Norm::Normed normed = norm_->forward(merged, parameters());
  saved.keep(kMerged, merged);
  if (site().strategy.recompute != Recompute::full) saved.keep(kStatistics, normed.statistics);
  const at::Tensor wide = parallel::gather_tokens(normed.y, site());
  return columns_to_tokens(ops::linear(wide, parameters().weight(reduction_), {}), site());
}

at::Tensor PatchMerging::backward(const at::Tensor& dy, const Feed&, Saved& saved,
                                  parallel::WeightWork& work) {
  const at::Tensor& merged = saved.at(kMerged);
  const at::Tensor statistics = saved.has(kStatistics)
                                    ? saved.at(kStatistics)
                                    : norm_->forward(merged, parameters()).statistics;
  const at::Tensor columns = tokens_to_columns(dy, site());
  const at::Tensor dnormed = parallel::scatter_sum(
      ops::linear_input_gradient(columns, parameters().weight(reduction_)), site());
  const at::Tensor normed = at::empty_like(merged);
  const at::Tensor dmerged =
      norm_->backward(dnormed, merged, statistics, parameters(), work, {}, normed);
  work.later([this, columns, normed] {
    ops::add_weight_gradient(parameters().gradient_sum(reduction_), columns,
                             parallel::gather_tokens(normed, site()));
  });
  return neighbours_.apart(dmerged);
}

}  // namespace braid::models
