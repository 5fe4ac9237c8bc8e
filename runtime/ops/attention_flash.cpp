#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <optional>
#include <tuple>

#include "runtime/ops/attention_kernels.h"

namespace braid::ops {

namespace {

// The CPU's kernel takes [batch, heads, tokens, head_dim], the GPU's [batch, tokens, heads,
// head_dim]; both read through strides, so that nothing is copied here.
at::Tensor heads_second(const at::Tensor& x) { return x.permute({1, 2, 0, 3}); }
at::Tensor tokens_first(const at::Tensor& x) { return x.permute({2, 0, 1, 3}); }

at::Tensor with_dense_heads(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// How the CPU's kernel is told a band.
struct CpuMask {
  bool causal = false;
  std::optional<at::Tensor> added;
};
CpuMask cpu_mask(const Band& band, const at::Tensor& q, const at::Tensor& k) {
  const std::int64_t queries = q.size(0);
  const std::int64_t keys = k.size(0);
  if (sees_all(band, queries, keys)) return {};
  if (is_lower_triangle(band, queries)) return {.causal = true, .added = {}};
  at::Tensor added = at::zeros({1, 1, queries, keys}, q.options());
  added.masked_fill_(hidden_pairs(band, queries, keys, q.device()),
                     -std::numeric_limits<double>::infinity());
  return {.causal = false, .added = added};
}

}  // namespace

Attended cpu_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                   const Band& band) {
  const CpuMask mask = cpu_mask(band, q, k);
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads_second(with_dense_heads(q)), heads_second(with_dense_heads(k)),
      heads_second(with_dense_heads(v)), /*dropout_p=*/0.0, mask.causal, mask.added, scale);
  return {tokens_first(out), lse};
}

AttentionGradients cpu_flash_backward(const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& out, const at::Tensor& lse, double scale,
                                      const Band& band) {
  const CpuMask mask = cpu_mask(band, q, k);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      heads_second(with_dense_heads(dout)), heads_second(with_dense_heads(q)),
      heads_second(with_dense_heads(k)), heads_second(with_dense_heads(v)),
      heads_second(with_dense_heads(out)), lse, /*dropout_p=*/0.0, mask.causal, mask.added, scale);
  return {tokens_first(dq), tokens_first(dk), tokens_first(dv)};
}

bool cuda_flash_takes(const at::Tensor& q) {
  const bool halves = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return q.is_cuda() && halves && q.size(-1) % 8 == 0 && q.size(-1) <= 256;
}

CudaWindow cuda_window(const Band& band, std::int64_t queries, std::int64_t keys) {
  const std::int64_t surplus = keys - queries;
  CudaWindow window;
  if (band.before < queries - 1) window.left = band.before + surplus;
  if (band.after < keys - 1) window.right = band.after - surplus;
  window.causal = !window.left && window.right == 0;
  return window;
}

Attended cuda_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                    const Band& band) {
  const CudaWindow window = cuda_window(band, q.size(0), k.size(0));
  const auto result = at::_flash_attention_forward(
      with_dense_heads(q).transpose(0, 1), with_dense_heads(k).transpose(0, 1),
      with_dense_heads(v).transpose(0, 1), /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, q.size(0), k.size(0),
      /*dropout_p=*/0.0, window.causal, /*return_debug_mask=*/false, scale, window.left,
      window.right);
  return {std::get<0>(result).transpose(0, 1), std::get<1>(result)};
}

AttentionGradients cuda_flash_backward(const at::Tensor& dout, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v,
                                       const at::Tensor& out, const at::Tensor& lse, double scale,
                                       const Band& band) {
  const CudaWindow window = cuda_window(band, q.size(0), k.size(0));
  const at::Tensor no_dropout = at::empty({2}, q.options().dtype(at::kUInt64));
  auto [dq, dk, dv] = at::_flash_attention_backward(
      with_dense_heads(dout).transpose(0, 1), with_dense_heads(q).transpose(0, 1),
      with_dense_heads(k).transpose(0, 1), with_dense_heads(v).transpose(0, 1),
      with_dense_heads(out).transpose(0, 1), lse.contiguous(), /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
      q.size(0), k.size(0), /*dropout_p=*/0.0, window.causal, no_dropout, no_dropout, scale,
      window.left, window.right);
  return {dq.transpose(0, 1), dk.transpose(0, 1), dv.transpose(0, 1)};
}

}  // namespace braid::ops
