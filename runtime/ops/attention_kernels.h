#pragma once
// The kernels behind attention.h, each over a block in which every query sees some key.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/ops/attention.h"

namespace braid::ops {

// Query i of a block sees the keys from i - before to i + after.
struct Band {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

// What a kernel may be told of a band.
bool sees_all(const Band& band, std::int64_t queries, std::int64_t keys);
bool is_lower_triangle(const Band& band, std::int64_t queries);

// ATen's flash kernel for the CPU: any precision.
Attended cpu_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                   const Band& band);
AttentionGradients cpu_flash_backward(const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& out, const at::Tensor& lse, double scale,
                                      const Band& band);

// ATen's flash kernel for GPUs: 16 bits, some head_dims.
bool cuda_flash_takes(const at::Tensor& q);
// How it is told a band: it counts from the diagonal that ends in the last query and the last key.
// Nothing stands for no limit.
struct CudaWindow {
  bool causal = false;
  std::optional<std::int64_t> left, right;
};
CudaWindow cuda_window(const Band& band, std::int64_t queries, std::int64_t keys);
Attended cuda_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                    const Band& band);
AttentionGradients cuda_flash_backward(const at::Tensor& dout, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v,
                                       const at::Tensor& out, const at::Tensor& lse, double scale,
                                       const Band& band);

// cuDNN's kernel: 16 bits, all keys or a causal square. Its out and lse are as flash's, so that one
// may go on where the other began. Nothing where cuDNN failed, which is noted.
bool cudnn_takes(const at::Tensor& q, const at::Tensor& k, const Band& band);
// Whether the message of a failed call says that cuDNN does not know the operation, so that another
// kernel is to do it from now on. Memory that ran out may be there the next time, and a GPU's error
// must end the run.
bool is_cudnn_refusal(std::string_view message);
std::optional<Attended> cudnn_attention(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, double scale, const Band& band);
std::optional<AttentionGradients> cudnn_attention_backward(
    const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& lse, double scale, const Band& band);

// Matrix products with all scores in memory: any device, any precision. `added` [batch, heads,
// queries, keys], where there is one, is added to the scores (either of its first two sizes may be
// 1); under it a query may see nothing. Its gradient, in whole, is `dadded` where that is asked
// for.
Attended plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         double scale, const Band& band, const at::Tensor& added = {});
AttentionGradients plain_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                            const at::Tensor& k, const at::Tensor& v,
                                            const at::Tensor& out, const at::Tensor& lse,
                                            double scale, const Band& band,
                                            const at::Tensor& added = {},
                                            at::Tensor* dadded = nullptr);

// ATen's memory-efficient kernel for GPUs: bf16, all keys or a causal square, as many heads of keys
// as of queries, and under `added` every query must see a key. As above otherwise.
// Why it does not take what lies on a GPU; empty: it does.
std::string efficient_refusal(const at::Tensor& q, const at::Tensor& k, const Band& band,
                              const Visibility& see);
Attended efficient_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             double scale, const Band& band, const at::Tensor& added);
AttentionGradients efficient_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const at::Tensor& out, const at::Tensor& lse,
                                                double scale, const Band& band,
                                                const at::Tensor& added, at::Tensor* dadded);

// With slopes, tables and padding, for a few samples and heads at a time. Matrix products on a GPU
// are noted.
Attended biased_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          double scale, const Band& band, const Visibility& see);
AttentionGradients biased_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& out, const at::Tensor& lse,
                                             double scale, const Band& band, const Visibility& see);

// [queries, keys] bool: the pairs outside the band.
at::Tensor hidden_pairs(const Band& band, std::int64_t queries, std::int64_t keys,
                        at::Device device);

}  // namespace braid::ops
