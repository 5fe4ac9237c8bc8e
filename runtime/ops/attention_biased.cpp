#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/fallback.h"
#include "runtime/ops/precision.h"
#include "runtime/ops/reorder.h"

namespace braid::ops {

namespace {

// Scores of so many pairs are in memory at a time.
constexpr std::int64_t kPairsAtATime = std::int64_t{1} << 22;

// Samples and key-value heads that go together.
struct Part {
  std::int64_t sample = 0, samples = 0;
  std::int64_t kv_head = 0, kv_heads = 0;
  std::int64_t group = 1;  // heads that share a key-value head

  // [tokens, batch, heads or kv_heads, ..]
  at::Tensor of_heads(const at::Tensor& x) const { return cut(x, group); }
  at::Tensor of_kv(const at::Tensor& x) const { return cut(x, 1); }
  // [batch, heads, queries]
  at::Tensor of_lse(const at::Tensor& x) const {
    return x.narrow(0, sample, samples).narrow(1, kv_head * group, kv_heads * group);
  }

 private:
  at::Tensor cut(const at::Tensor& x, std::int64_t ways) const {
    return x.narrow(1, sample, samples).narrow(2, kv_head * ways, kv_heads * ways);
  }
};

template <class Body>
void for_parts(const at::Tensor& q, const at::Tensor& k, const Body& body) {
  const std::int64_t batch = q.size(1), kv_heads = k.size(2), group = q.size(2) / kv_heads;
  const std::int64_t of_kv_head = std::max<std::int64_t>(1, group * q.size(0) * k.size(0));
  const std::int64_t fit = std::max<std::int64_t>(1, kPairsAtATime / of_kv_head);
  const std::int64_t heads_step = std::min(kv_heads, fit);
  const std::int64_t step = std::max<std::int64_t>(1, fit / kv_heads);
  for (std::int64_t sample = 0; sample < batch; sample += step)
    for (std::int64_t head = 0; head < kv_heads; head += heads_step)
      body(Part{.sample = sample,
                .samples = std::min(step, batch - sample),
                .kv_head = head,
                .kv_heads = std::min(heads_step, kv_heads - head),
                .group = group});
}

// [queries · keys]: the row of each pair in a table by distance.
at::Tensor distance_rows(const at::Tensor& q, const at::Tensor& k, const Visibility& see) {
  if (see.pair_rows.defined()) return see.pair_rows.flatten();
  const at::TensorOptions index = at::TensorOptions(at::kLong).device(q.device());
  const at::Tensor keys = at::arange(see.key_begin, see.key_begin + k.size(0), index);
  const at::Tensor queries = at::arange(see.query_begin, see.query_begin + q.size(0), index);
  const std::int64_t middle = see.by_distance.size(0) / 2;
  return at::sub(keys, queries.unsqueeze(1)).add_(middle).flatten();
}

// [rows, heads] of a part's heads.
at::Tensor heads_of(const Part& part, const at::Tensor& table) {
  return table.narrow(1, part.kv_head * part.group, part.kv_heads * part.group);
}

// What is added to the scores of a part, [samples or 1, heads or 1, queries or 1, keys].
at::Tensor added_to(const Part& part, const at::Tensor& q, const at::Tensor& k,
                    const Visibility& see) {
  const at::TensorOptions index = at::TensorOptions(at::kLong).device(q.device());
  const at::TensorOptions exact = q.options().dtype(wide(q.scalar_type()));
  const at::Tensor keys = at::arange(see.key_begin, see.key_begin + k.size(0), index);
  at::Tensor added = at::zeros({1, 1, 1, k.size(0)}, exact);
  if (see.slopes.defined()) {
    const at::Tensor queries = at::arange(see.query_begin, see.query_begin + q.size(0), index);
    const at::Tensor slopes =
        see.slopes.narrow(0, part.kv_head * part.group, part.kv_heads * part.group)
            .to(wide(q.scalar_type()));
    added = at::mul(at::sub(keys, queries.unsqueeze(1)), slopes.view({1, -1, 1, 1}));
  }
  if (see.by_distance.defined())
    added = heads_of(part, see.by_distance)
                .to(wide(q.scalar_type()))
                .index_select(0, distance_rows(q, k, see))
                .view({1, q.size(0), k.size(0), -1})
                .permute({0, 3, 1, 2})
                .add(added);
  if (see.by_group.defined()) {
    const std::int64_t samples = q.size(1) / see.by_group.size(0);
    const at::Tensor groups =
        at::arange(part.sample, part.sample + part.samples, index).div(samples, "floor");
    added = see.by_group.to(wide(q.scalar_type())).index_select(0, groups).unsqueeze(1).add(added);
  }
  if (see.lengths.defined()) {
    const at::Tensor hidden =
        keys.ge(see.lengths.narrow(0, part.sample, part.samples).unsqueeze(1));
    added = added.expand({part.samples, -1, -1, -1})
                .masked_fill(hidden.view({part.samples, 1, 1, -1}),
                             -std::numeric_limits<double>::infinity());
  }
  return added;
}

// Adds [heads, queries, keys] to the rows of a table by distance, [rows, heads]. A matrix written
// into rows of one more than its diagonals has each diagonal in a column: their sums need no
// atomics.
void add_by_distance(const at::Tensor& gradient, const at::Tensor& by_pair, const Visibility& see) {
  const std::int64_t heads = by_pair.size(0), queries = by_pair.size(1), keys = by_pair.size(2);
  const std::int64_t diagonals = queries + keys - 1, wide_row = diagonals + 1;
  const at::Tensor skewed = at::zeros({heads, queries, wide_row}, by_pair.options());
  skewed.as_strided({heads, queries, keys}, {queries * wide_row, diagonals, 1}, queries - 1)
      .copy_(by_pair);
  const std::int64_t middle = see.by_distance.size(0) / 2;
  const std::int64_t first = see.key_begin - see.query_begin - (queries - 1) + middle;
  gradient.narrow(0, first, diagonals).add_(skewed.sum(1).narrow(1, 0, diagonals).t());
}

bool goes_efficient(const at::Tensor& q, const at::Tensor& k, const Band& band,
                    const Visibility& see) {
  if (!q.is_cuda()) return false;
  const std::string refusal = efficient_refusal(q, k, band, see);
  if (!refusal.empty()) note_fallback("attention with a bias or padding", refusal);
  return refusal.empty();
}

}  // namespace

Attended biased_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          double scale, const Band& band, const Visibility& see) {
  Attended whole{
      at::empty(q.sizes(), q.options()),
      at::empty({q.size(1), q.size(2), q.size(0)}, q.options().dtype(wide(q.scalar_type())))};
  const auto attend = goes_efficient(q, k, band, see) ? efficient_attention : plain_attention;
  for_parts(q, k, [&](const Part& part) {
    const Attended one = attend(part.of_heads(q), part.of_kv(k), part.of_kv(v), scale, band,
                                added_to(part, q, k, see));
    part.of_heads(whole.out).copy_(one.out);
    part.of_lse(whole.lse).copy_(one.lse);
  });
  return whole;
}

AttentionGradients biased_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& out, const at::Tensor& lse,
                                             double scale, const Band& band,
                                             const Visibility& see) {
  AttentionGradients whole{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                           at::empty(v.sizes(), v.options())};
  const auto attend_backward =
      goes_efficient(q, k, band, see) ? efficient_attention_backward : plain_attention_backward;
  for_parts(q, k, [&](const Part& part) {
    at::Tensor dadded;
    const AttentionGradients one = attend_backward(
        part.of_heads(dout), part.of_heads(q), part.of_kv(k), part.of_kv(v), part.of_heads(out),
        part.of_lse(lse), scale, band, added_to(part, q, k, see),
        see.distance_gradient.defined() ? &dadded : nullptr);
    if (dadded.defined()) {
      const at::Tensor gradient = heads_of(part, see.distance_gradient);
      const at::Tensor by_pair = dadded.sum(at::IntArrayRef{0}, false, gradient.scalar_type());
      if (see.pair_rows.defined())
        add_rows(gradient, see.pair_rows.flatten(), by_pair.permute({1, 2, 0}).flatten(0, 1));
      else
        add_by_distance(gradient, by_pair, see);
    }
    part.of_heads(whole.dq).copy_(one.dq);
    part.of_kv(whole.dk).copy_(one.dk);
    part.of_kv(whole.dv).copy_(one.dv);
  });
  return whole;
}

}  // namespace braid::ops
