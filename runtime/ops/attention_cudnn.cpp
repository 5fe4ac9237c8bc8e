// cuDNN's attention, the faster one from Hopper on.

#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>

#include <atomic>
#include <exception>
#include <string>
#include <string_view>
#include <tuple>

#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/device.h"
#include "runtime/ops/fallback.h"

namespace braid::ops {

namespace {

constexpr int kHopper = 90;
constexpr std::int64_t kWidestHead = 128;

// Set where a call failed: asking again would cost each time.
std::atomic<bool> forward_failed = false, backward_failed = false;

// [batch, heads, tokens, head_dim], through strides.
at::Tensor heads_second(const at::Tensor& x) { return x.permute({1, 2, 0, 3}); }
at::Tensor tokens_first(const at::Tensor& x) { return x.permute({2, 0, 1, 3}); }

at::Tensor with_dense_heads(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

bool cudnn_takes(const at::Tensor& q, const at::Tensor& k, const Band& band) {
  if (!q.is_cuda() || compute_capability(q.device()) < kHopper) return false;
  const bool halves = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  const auto refuse = [](const std::string& reason) {
    note_fallback("attention through cuDNN", reason);
    return false;
  };
  if (!halves) return refuse(fmt::format("{} is not 16 bits", c10::toString(q.scalar_type())));
  if (q.size(-1) % 8 != 0 || q.size(-1) > kWidestHead)
    return refuse(fmt::format("heads of {}", q.size(-1)));
  const std::int64_t queries = q.size(0), keys = k.size(0);
  if (keys == 1) return refuse("a single key");
  const bool triangle = queries == keys && is_lower_triangle(band, queries);
  if (triangle || sees_all(band, queries, keys)) return true;
  return refuse("a mask that is neither causal nor empty");
}

bool is_cudnn_refusal(std::string_view message) {
  const auto has = [&](std::string_view part) { return message.find(part) != message.npos; };
  for (const char* failure : {"out of memory", "CUDA error", "ALLOC_FAILED", "EXECUTION_FAILED",
                              "INTERNAL_ERROR", "MAPPING_ERROR"})
    if (has(failure)) return false;
  return has("cuDNN Frontend error") || has("not supported") || has("NOT_SUPPORTED") ||
         has("not compiled with");
}

std::optional<Attended> cudnn_attention(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, double scale, const Band& band) {
  if (forward_failed) return std::nullopt;
  const bool causal = !sees_all(band, q.size(0), k.size(0));
  try {
    const auto made = at::_scaled_dot_product_cudnn_attention(
        heads_second(with_dense_heads(q)), heads_second(with_dense_heads(k)),
        heads_second(with_dense_heads(v)), /*attn_bias=*/{}, /*compute_log_sumexp=*/true,
        /*dropout_p=*/0.0, causal, /*return_debug_mask=*/false, scale);
    // cuDNN's log-sum-exp has a last dim of 1.
    const at::Tensor lse = std::get<1>(made).view({q.size(1), q.size(2), q.size(0)});
    return Attended{tokens_first(std::get<0>(made)), lse};
  } catch (const c10::Error& error) {
    if (!is_cudnn_refusal(error.what())) throw;
    forward_failed = true;
    note_fallback("attention through cuDNN", first_line(error));
    return std::nullopt;
  }
}

std::optional<AttentionGradients> cudnn_attention_backward(
    const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& lse, double scale, const Band& band) {
  if (backward_failed) return std::nullopt;
  const bool causal = !sees_all(band, q.size(0), k.size(0));
  const at::Tensor no_dropout = at::empty({}, q.options().dtype(at::kLong));
  try {
    auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        heads_second(with_dense_heads(dout)), heads_second(with_dense_heads(q)),
        heads_second(with_dense_heads(k)), heads_second(with_dense_heads(v)),
        heads_second(with_dense_heads(out)), lse.contiguous().unsqueeze(-1), no_dropout, no_dropout,
        /*attn_bias=*/{}, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, q.size(0), k.size(0),
        /*dropout_p=*/0.0, causal, scale);
    return AttentionGradients{tokens_first(dq), tokens_first(dk), tokens_first(dv)};
  } catch (const c10::Error& error) {
    if (!is_cudnn_refusal(error.what())) throw;
    backward_failed = true;
    note_fallback("attention's gradient through cuDNN", first_line(error));
    return std::nullopt;
  }
}

}  // namespace braid::ops
