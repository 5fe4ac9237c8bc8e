#include "runtime/ops/embedding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sub.h>

#include <optional>
#include <vector>

#include "runtime/ops/fused.h"
#include "runtime/ops/reorder.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

// Ids as rows of this rank's table. Ids that lie elsewhere stand at some row and are marked, which
// keeps every shape independent of the data (and so the GPU from waiting). They spread over all
// rows: gradients of one row are added one after the other.
struct LocalRows {
  at::Tensor rows;       // [n]
  at::Tensor elsewhere;  // [n, 1] bool
};
LocalRows local_rows(const at::Tensor& ids, std::int64_t first, std::int64_t held) {
  at::Tensor rows = at::sub(ids.reshape({-1}), first);
  const at::Tensor elsewhere = rows.lt(0).logical_or_(rows.ge(held));
  rows.remainder_(held);
  return {rows, elsewhere.unsqueeze(-1)};
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, std::int64_t first) {
  std::vector<std::int64_t> sizes = ids.sizes().vec();
  sizes.push_back(table.size(1));
  if (ids.is_meta() || table.is_meta()) return at::empty(sizes, table.options());
  const Timed timed("embedding");
  if (auto rows = fused::embedding(ids, table, first)) return *rows;
  const LocalRows local = local_rows(ids, first, table.size(0));
  return at::index_select(table, 0, local.rows).masked_fill_(local.elsewhere, 0).view(sizes);
}

void add_embedding_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& ids,
                            std::int64_t first, std::int64_t skipped) {
  if (gradient.is_meta() || dy.is_meta()) return;
  const Timed timed("embedding, gradient");
  LocalRows local = local_rows(ids, first, gradient.size(0));
  if (skipped >= 0) local.elsewhere.logical_or_(ids.reshape({-1, 1}).eq(skipped));
  const at::Tensor rows =
      dy.reshape({-1, dy.size(-1)}).to(gradient.scalar_type()).masked_fill(local.elsewhere, 0);
  add_rows(gradient, local.rows, rows);
}

}  // namespace braid::ops
