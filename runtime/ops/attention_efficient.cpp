// ATen's kernel that takes what is added to the scores: 16 bits, no scores in memory.

#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <limits>
#include <tuple>

#include "runtime/ops/attention_kernels.h"

namespace braid::ops {

namespace {

constexpr std::int64_t kWidestHead = 128;
constexpr std::int64_t kAdded = 16;  // keys of a row of what is added, in memory, are a multiple
constexpr std::int64_t kSums = 32;   // so are queries of the log-sum-exp
constexpr std::int64_t kNoMask = 0, kCausal = 1;  // by the kernel's numbers

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// [batch, tokens, heads, head_dim], through strides where the heads are dense.
at::Tensor batch_first(const at::Tensor& x) {
  return (x.stride(-1) == 1 ? x : x.contiguous()).transpose(0, 1);
}
at::Tensor tokens_first(const at::Tensor& x) { return x.transpose(0, 1); }

// [batch, heads, queries, keys] in q's precision, rows as far apart as the kernel wants them.
at::Tensor as_added(const at::Tensor& added, const at::Tensor& q, std::int64_t keys) {
  at::Tensor rows =
      at::empty({added.size(0), added.size(1), q.size(0), round_up(keys, kAdded)}, q.options());
  at::Tensor used = rows.narrow(3, 0, keys);
  used.copy_(added);
  return used.expand({q.size(1), q.size(2), q.size(0), keys});
}

std::int64_t mask_of(const Band& band, std::int64_t queries, std::int64_t keys) {
  return sees_all(band, queries, keys) ? kNoMask : kCausal;
}

}  // namespace

std::string efficient_refusal(const at::Tensor& q, const at::Tensor& k, const Band& band,
                              const Visibility& see) {
  if (q.scalar_type() != at::kBFloat16)
    return fmt::format("{} is not bf16", c10::toString(q.scalar_type()));
  if (q.size(2) != k.size(2)) return fmt::format("{} heads share {} of keys", q.size(2), k.size(2));
  if (q.size(3) % 8 != 0 || q.size(3) > kWidestHead) return fmt::format("heads of {}", q.size(3));
  const std::int64_t queries = q.size(0), keys = k.size(0);
  const bool triangle = queries == keys && is_lower_triangle(band, queries);
  if (!triangle && !sees_all(band, queries, keys)) return "a mask that is neither causal nor empty";
  // Padding begins behind the first key: whoever sees that one is never blind.
  if (see.lengths.defined() && see.key_begin > 0) return "keys that may all be padding";
  return {};
}

Attended efficient_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             double scale, const Band& band, const at::Tensor& added) {
  const std::int64_t queries = q.size(0), keys = k.size(0);
  const auto made = at::_efficient_attention_forward(
      batch_first(q), batch_first(k), batch_first(v), as_added(added, q, keys),
      /*cu_seqlens_q=*/{}, /*cu_seqlens_k=*/{}, queries, keys, /*dropout_p=*/0.0,
      mask_of(band, queries, keys), /*compute_log_sumexp=*/true, scale);
  return {tokens_first(std::get<0>(made)), std::get<1>(made).narrow(2, 0, queries)};
}

AttentionGradients efficient_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const at::Tensor& out, const at::Tensor& lse,
                                                double scale, const Band& band,
                                                const at::Tensor& added, at::Tensor* dadded) {
  const std::int64_t queries = q.size(0), keys = k.size(0);
  // The kernel asks neither for the strides of `out` nor for the end of the sums.
  at::Tensor sums = at::full({lse.size(0), lse.size(1), round_up(queries, kSums)},
                             std::numeric_limits<double>::infinity(), lse.options());
  sums.narrow(2, 0, queries).copy_(lse);
  const at::Tensor no_dropout = at::empty({}, at::TensorOptions(at::kLong));
  const auto made = at::_efficient_attention_backward(
      batch_first(dout), batch_first(q), batch_first(k), batch_first(v), as_added(added, q, keys),
      batch_first(out).contiguous(), /*cu_seqlens_q=*/{}, /*cu_seqlens_k=*/{}, queries, keys, sums,
      /*dropout_p=*/0.0, no_dropout, no_dropout, mask_of(band, queries, keys), dadded != nullptr,
      scale);
  // What lies behind the causal diagonal was not written.
  if (dadded != nullptr)
    *dadded =
        mask_of(band, queries, keys) == kCausal ? std::get<3>(made).tril() : std::get<3>(made);
  return {tokens_first(std::get<0>(made)), tokens_first(std::get<1>(made)),
          tokens_first(std::get<2>(made))};
}

}  // namespace braid::ops
