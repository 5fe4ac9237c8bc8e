#include "runtime/parallel/expert_dispatch.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/parallel/collectives.h"

namespace braid::parallel {

namespace {

at::Tensor numbers(std::vector<std::int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, tensor.data_ptr<std::int64_t>());
  return tensor;
}

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu();
  const auto* begin = host.data_ptr<std::int64_t>();
  return {begin, begin + host.numel()};
}

// Blocks of rows, given as a table of lengths [outer][inner], reordered to [inner][outer].
at::Tensor transpose_blocks(const at::Tensor& rows, int outer, int inner, auto length) {
  std::vector<at::Tensor> blocks;
  std::vector<std::int64_t> begin;
  std::int64_t position = 0;
  for (int o = 0; o < outer; ++o)
    for (int i = 0; i < inner; ++i) {
      begin.push_back(position);
      position += length(o, i);
    }
  for (int i = 0; i < inner; ++i)
    for (int o = 0; o < outer; ++o)
      blocks.push_back(
          rows.narrow(0, begin[static_cast<std::size_t>(o * inner + i)], length(o, i)));
  return at::cat(blocks, 0);
}

}  // namespace

ExpertDispatch::ExpertDispatch(const Site& site)
    : site_(site),
      experts_(static_cast<int>(site.shape.experts)),
      local_experts_(experts_ / site.strategy.ep),
      ranks_(site.strategy.ep),
      tensor_ranks_(site.tensor_split()) {}

ExpertDispatch ExpertDispatch::again(const std::vector<std::int64_t>& route, const Site& site) {
  ExpertDispatch dispatch(site);
  dispatch.route_ = route;
  return dispatch;
}

ExpertDispatch::ExpertDispatch(std::vector<std::int64_t> counts, const Site& site)
    : ExpertDispatch(site) {
  route_ = std::move(counts);
  const at::Device device = site.numerics.device;
  if (device.is_meta()) {
    // Nobody answers: as if all ranks routed alike. Each then sends this rank what this rank keeps
    // for its own experts, which need not be what the first rank's experts get.
    const auto own = route_.begin() + std::ptrdiff_t{site.expert_rank} * local_experts_;
    const std::vector<std::int64_t> mine(own, own + local_experts_);
    for (int r = 0; r < ranks_ + tensor_ranks_; ++r)
      for (const std::int64_t rows : mine) route_.push_back(r < ranks_ ? rows : rows * ranks_);
    return;
  }
  const at::Tensor received = all_to_all(numbers(route_).to(device), *site.experts, "expert counts",
                                         {}, {}, CommKind::expert);
  const std::vector<std::int64_t> from_each = values(received);
  std::vector<std::int64_t> arrived(static_cast<std::size_t>(local_experts_), 0);
  for (std::size_t i = 0; i < from_each.size(); ++i)
    arrived[i % static_cast<std::size_t>(local_experts_)] += from_each[i];
  std::vector<std::int64_t> all = arrived;
  if (site.megatron())
    all = values(
        all_gather(numbers(arrived).to(device), *site.tensor, "expert rows", CommKind::tensor));
  route_.insert(route_.end(), from_each.begin(), from_each.end());
  route_.insert(route_.end(), all.begin(), all.end());
}

std::int64_t ExpertDispatch::sent(int expert) const {
  return route_[static_cast<std::size_t>(expert)];
}
std::int64_t ExpertDispatch::received(int rank, int expert) const {
  return route_[static_cast<std::size_t>(experts_ + rank * local_experts_ + expert)];
}
std::int64_t ExpertDispatch::gathered(int rank, int expert) const {
  return route_[static_cast<std::size_t>(2 * experts_ + rank * local_experts_ + expert)];
}

std::int64_t ExpertDispatch::arrived(int tensor_rank) const {
  std::int64_t total = 0;
  for (int e = 0; e < local_experts_; ++e) total += gathered(tensor_rank, e);
  return total;
}

std::int64_t ExpertDispatch::longest() const {
  std::int64_t most = 0;
  for (int r = 0; r < tensor_ranks_; ++r) most = std::max(most, arrived(r));
  return most;
}

std::vector<std::int64_t> ExpertDispatch::rows_per_expert() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(local_experts_), 0);
  for (int r = 0; r < tensor_ranks_; ++r)
    for (int e = 0; e < local_experts_; ++e) rows[static_cast<std::size_t>(e)] += gathered(r, e);
  return rows;
}

at::Tensor ExpertDispatch::to_experts(const at::Tensor& rows) const {
  if (ranks_ == 1) return rows;
  std::vector<std::int64_t> to_each(static_cast<std::size_t>(ranks_), 0);
  std::vector<std::int64_t> from_each(static_cast<std::size_t>(ranks_), 0);
  for (int r = 0; r < ranks_; ++r)
    for (int e = 0; e < local_experts_; ++e) {
      to_each[static_cast<std::size_t>(r)] += sent(r * local_experts_ + e);
      from_each[static_cast<std::size_t>(r)] += received(r, e);
    }
  const at::Tensor came = parallel::all_to_all(rows, *site_.experts, "to experts", to_each,
                                               from_each, CommKind::expert);
  return transpose_blocks(came, ranks_, local_experts_,
                          [&](int r, int e) { return received(r, e); });
}

at::Tensor ExpertDispatch::from_experts(const at::Tensor& rows) const {
  if (ranks_ == 1) return rows;
  std::vector<std::int64_t> to_each(static_cast<std::size_t>(ranks_), 0);
  std::vector<std::int64_t> from_each(static_cast<std::size_t>(ranks_), 0);
  for (int r = 0; r < ranks_; ++r)
    for (int e = 0; e < local_experts_; ++e) {
      to_each[static_cast<std::size_t>(r)] += received(r, e);
      from_each[static_cast<std::size_t>(r)] += sent(r * local_experts_ + e);
    }
  const at::Tensor by_rank =
      transpose_blocks(rows, local_experts_, ranks_, [&](int e, int r) { return received(r, e); });
  return parallel::all_to_all(by_rank, *site_.experts, "from experts", to_each, from_each,
                              CommKind::expert);
}

at::Tensor ExpertDispatch::gather(const at::Tensor& rows) const {
  if (tensor_ranks_ == 1) return rows;
  // Ranks have different numbers of rows; padded to the longest they travel as one collective.
  at::Tensor padded = at::zeros({longest(), rows.size(1)}, rows.options());
  padded.narrow(0, 0, rows.size(0)).copy_(rows);
  const at::Tensor all = all_gather(padded, *site_.tensor, "gather expert rows", CommKind::tensor);
  std::vector<at::Tensor> real;
  real.reserve(static_cast<std::size_t>(tensor_ranks_));
  for (int r = 0; r < tensor_ranks_; ++r) real.push_back(all.narrow(0, r * longest(), arrived(r)));
  return transpose_blocks(at::cat(real, 0), tensor_ranks_, local_experts_,
                          [&](int r, int e) { return gathered(r, e); });
}

at::Tensor ExpertDispatch::scatter_sum(const at::Tensor& rows) const {
  if (tensor_ranks_ == 1) return rows;
  const at::Tensor by_rank = transpose_blocks(rows, local_experts_, tensor_ranks_,
                                              [&](int e, int r) { return gathered(r, e); });
  at::Tensor padded = at::zeros({tensor_ranks_ * longest(), rows.size(1)}, rows.options());
  std::int64_t begin = 0;
  for (int r = 0; r < tensor_ranks_; ++r) {
    padded.narrow(0, r * longest(), arrived(r)).copy_(by_rank.narrow(0, begin, arrived(r)));
    begin += arrived(r);
  }
  return reduce_scatter(padded, *site_.tensor, "scatter expert rows", CommKind::tensor)
      .narrow(0, 0, arrived(site_.tensor_rank));
}

}  // namespace braid::parallel
