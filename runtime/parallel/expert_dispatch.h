#pragma once
// Rows on their way to experts and back. The route is fixed by counts alone, so that backward and
// recomputation repeat it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/parallel/site.h"

namespace braid::parallel {

class ExpertDispatch {
 public:
  // `counts`: rows of this rank for each expert of the layer. Collective: ranks tell each other.
  ExpertDispatch(std::vector<std::int64_t> counts, const Site& site);
  // The same route again, from what route() gave.
  static ExpertDispatch again(const std::vector<std::int64_t>& route, const Site& site);
  const std::vector<std::int64_t>& route() const { return route_; }

  // Over the expert-parallel ranks: rows ordered by expert → rows that chose this rank's experts,
  // ordered by expert; and back. Each is the other's gradient.
  at::Tensor to_experts(const at::Tensor& rows) const;
  at::Tensor from_experts(const at::Tensor& rows) const;
  // Over the tensor group: this rank's rows → all ranks' rows, ordered by expert; and the sum over
  // ranks back to this rank's rows. As they are without megatron.
  at::Tensor gather(const at::Tensor& rows) const;
  at::Tensor scatter_sum(const at::Tensor& rows) const;

  // Rows of each local expert after gather().
  std::vector<std::int64_t> rows_per_expert() const;

 private:
  explicit ExpertDispatch(const Site& site);
  std::int64_t sent(int expert) const;                // by expert of the layer
  std::int64_t received(int rank, int expert) const;  // by expert-parallel rank, local expert
  std::int64_t gathered(int rank, int expert) const;  // by tensor rank, local expert
  std::int64_t arrived(int tensor_rank) const;        // rows a tensor rank has after to_experts
  std::int64_t longest() const;

  const Site& site_;
  int experts_, local_experts_, ranks_, tensor_ranks_;
  // sent by expert | received by (rank, local expert) | gathered by (tensor rank, local expert)
  std::vector<std::int64_t> route_;
};

}  // namespace braid::parallel
