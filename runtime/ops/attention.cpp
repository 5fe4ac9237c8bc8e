#include "runtime/ops/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <limits>

#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/precision.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();  // the lse of no keys
constexpr std::int64_t kEverything = std::int64_t{1} << 40;

// The part of a block in which every query sees some key and every key is seen, with the band of
// that part. Flash kernels need no more than this to handle any Visibility, and never meet a query
// that sees nothing (of which the CPU's makes an lse of 0, and NaN in backward).
struct Block {
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;
  Band band;

  bool empty() const { return queries <= 0 || keys <= 0; }
  at::Tensor of_queries(const at::Tensor& x, std::int64_t dim = 0) const {
    return x.narrow(dim, first_query, queries);
  }
  at::Tensor of_keys(const at::Tensor& x) const { return x.narrow(0, first_key, keys); }
};

Band band_of(const Visibility& see) {
  Band band{kEverything, kEverything};
  if (see.causal) {
    band.after = see.query_begin - see.key_begin;
    if (see.window > 0) band.before = see.window - 1 - band.after;
  }
  return band;
}

bool is_biased(const Visibility& see) {
  return see.slopes.defined() || see.lengths.defined() || see.by_distance.defined() ||
         see.by_group.defined();
}

Block visible_block(const Visibility& see, std::int64_t queries, std::int64_t keys) {
  const Band band = band_of(see);
  Block block;
  block.first_query = std::max<std::int64_t>(0, -band.after);
  block.queries = std::min(queries, keys + band.before) - block.first_query;
  block.first_key = std::max<std::int64_t>(0, -band.before);
  block.keys = std::min(keys, queries + band.after) - block.first_key;
  const std::int64_t shift = block.first_query - block.first_key;
  block.band = {band.before - shift, band.after + shift};
  return block;
}

Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                const Band& band) {
  if (q.is_cpu()) return cpu_flash(q, k, v, scale, band);
  if (cudnn_takes(q, k, band))
    if (auto made = cudnn_attention(q, k, v, scale, band)) return *made;
  if (cuda_flash_takes(q)) return cuda_flash(q, k, v, scale, band);
  return plain_attention(q, k, v, scale, band);
}

AttentionGradients attend_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& out,
                                   const at::Tensor& lse, double scale, const Band& band) {
  if (q.is_cpu()) return cpu_flash_backward(dout, q, k, v, out, lse, scale, band);
  if (cudnn_takes(q, k, band))
    if (auto made = cudnn_attention_backward(dout, q, k, v, out, lse, scale, band)) return *made;
  if (cuda_flash_takes(q)) return cuda_flash_backward(dout, q, k, v, out, lse, scale, band);
  return plain_attention_backward(dout, q, k, v, out, lse, scale, band);
}

// `part` at its place among zeros.
at::Tensor among_zeros(const at::Tensor& part, const at::Tensor& like, std::int64_t first) {
  if (part.size(0) == like.size(0)) return part.contiguous();
  at::Tensor whole = at::zeros(like.sizes(), like.options());
  whole.narrow(0, first, part.size(0)).copy_(part);
  return whole;
}

}  // namespace

bool sees_any(const Visibility& see, std::int64_t queries, std::int64_t keys) {
  return !visible_block(see, queries, keys).empty();
}

Attended attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                   const Visibility& see) {
  const at::TensorOptions exact = q.options().dtype(wide(q.scalar_type()));
  const std::array lse_sizes{q.size(1), q.size(2), q.size(0)};
  if (q.is_meta()) return {at::empty(q.sizes(), q.options()), at::empty(lse_sizes, exact)};
  const Timed timed(kAttention, {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), k.size(0),
                                 see.causal ? 1 : 0});
  if (is_biased(see)) return biased_attention(q, k, v, scale, band_of(see), see);
  const Block block = visible_block(see, q.size(0), k.size(0));
  if (block.empty()) {
    return {at::zeros(q.sizes(), q.options()), at::full(lse_sizes, kNothing, exact)};
  }
  const Attended part =
      attend(block.of_queries(q), block.of_keys(k), block.of_keys(v), scale, block.band);
  if (block.queries == q.size(0)) return {part.out.contiguous(), part.lse.contiguous()};
  at::Tensor lse = at::full(lse_sizes, kNothing, exact);
  block.of_queries(lse, 2).copy_(part.lse);
  return {among_zeros(part.out, q, block.first_query), lse};
}

AttentionGradients attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& out, const at::Tensor& lse, double scale,
                                      const Visibility& see) {
  if (q.is_meta()) {
    return {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
            at::empty(v.sizes(), v.options())};
  }
  const Timed timed(kAttentionBackward, {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3),
                                         k.size(0), see.causal ? 1 : 0});
  if (is_biased(see))
    return biased_attention_backward(dout, q, k, v, out, lse, scale, band_of(see), see);
  const Block block = visible_block(see, q.size(0), k.size(0));
  if (block.empty()) {
    return {at::zeros(q.sizes(), q.options()), at::zeros(k.sizes(), k.options()),
            at::zeros(v.sizes(), v.options())};
  }
  const AttentionGradients part = attend_backward(
      block.of_queries(dout), block.of_queries(q), block.of_keys(k), block.of_keys(v),
      block.of_queries(out), block.of_queries(lse, 2), scale, block.band);
  return {among_zeros(part.dq, q, block.first_query), among_zeros(part.dk, k, block.first_key),
          among_zeros(part.dv, v, block.first_key)};
}

Attended merge(const Attended& a, const Attended& b) {
  const at::Tensor lse = at::logaddexp(a.lse, b.lse);
  // Against a 0 in place of -inf the share of a side without keys is exp(-inf) = 0, never NaN.
  const at::Tensor base = lse.masked_fill(lse.eq(kNothing), 0);
  const auto share = [&](const Attended& side) {
    return at::sub(side.lse, base).exp_().permute({2, 0, 1}).unsqueeze(-1);
  };
  const at::Tensor out = at::mul(a.out, share(a)).add_(at::mul(b.out, share(b)));
  return {out.to(a.out.scalar_type()), lse};
}

}  // namespace braid::ops
