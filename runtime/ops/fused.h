#pragma once
// The kernels of ops/cuda on tensors. Each function says whether it did the work: where no kernel
// reaches the tensors it does nothing, and on a GPU the reason is noted (ops/fallback.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/ops/activation.h"
#include "runtime/ops/cuda/kernels.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/rotary.h"

namespace braid::ops::fused {

// Whether kernels reach the memory of this tensor.
bool reaches(const at::Tensor& x);

// As ops::embedding().
std::optional<at::Tensor> embedding(const at::Tensor& ids, const at::Tensor& table,
                                    std::int64_t first);

enum class NormKind { rms, layer };

struct Normed {
  at::Tensor y, statistics;
  at::Tensor sum;  // x + added, where something was added
};
std::optional<Normed> norm(NormKind kind, const at::Tensor& x, const at::Tensor& added,
                           const at::Tensor& weight, const at::Tensor& bias, double epsilon);
// As ops::layer_norm_backward and its kin.
std::optional<NormGradients> norm_backward(NormKind kind, const at::Tensor& dy, const at::Tensor& x,
                                           const at::Tensor& statistics, const at::Tensor& weight,
                                           const BesideNorm& beside);

std::optional<at::Tensor> activate(kernels::Curve curve, bool gated, const at::Tensor& x);
std::optional<at::Tensor> activate_backward(kernels::Curve curve, bool gated, const at::Tensor& dy,
                                            const at::Tensor& x);
// As ops::activate_again: the gradient in place of x, and what x becomes in place of dy.
std::optional<ActivatedAgain> activate_again(kernels::Curve curve, bool gated, const at::Tensor& dy,
                                             const at::Tensor& x, bool wants_few_rows);

// One after the other in the last dim of [tokens, batch, heads, head_dim]: turns the heads of q and
// k where they lie.
struct PackedHeads {
  std::int64_t q = 0, kv = 0;  // heads
};
bool rotary_in_place(const at::Tensor& qkv, const PackedHeads& heads, const RotaryTable& table);
// dq, dk and dv of [tokens, batch, heads, head_dim], the first two turned back, as one tensor
// [tokens, batch, (q + 2·kv)·head_dim].
std::optional<PackedGradient> packed_heads(const QkvHeads& gradients, const RotaryTable* table,
                                           bool wants_few_rows);

// The loss of each row; the logits become their gradient times `scale`.
struct Vocabulary {
  std::int64_t first = 0, real = 0, ignored = 0;
};
std::optional<at::Tensor> cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                        const Vocabulary& slice, double scale);
struct SliceStatistics {
  at::Tensor largest;  // [rows]
  at::Tensor sums;     // [rows, 2], as kernels::logits_statistics
};
std::optional<SliceStatistics> logits_statistics(const at::Tensor& logits, const at::Tensor& labels,
                                                 const Vocabulary& slice);
bool logits_gradient(const at::Tensor& logits, const at::Tensor& labels, const Vocabulary& slice,
                     double scale, const at::Tensor& largest, const at::Tensor& sums);

// x [rows, width] in 8 bits, as it stands or with rows and columns exchanged; a value times the
// scale, one fp32, is x's. Both sizes are multiples of 16, and kernels reach x.
struct Rounded {
  at::Tensor values, scale;
};
Rounded round_to_fp8(const at::Tensor& x, kernels::Fp8 format, bool turned);

// As ops::share_processors().
void share_processors();
// gradient [out, in] += dyᵀ·x of dy [rows, out] and x [rows, in], in fp32 by the product itself.
bool add_product(const Sum& gradient, const at::Tensor& dy, const at::Tensor& x);
// sum [m, n] fp32 += left [m, k] · right [k, n].
bool add_to(const Sum& sum, const at::Tensor& left, const at::Tensor& right);
// x·Wᵀ + bias, and dy·W.
std::optional<at::Tensor> linear(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias);
bool linear_into(const RowGroups& rows, const at::Tensor& weight, const at::Tensor& bias);
std::optional<at::Tensor> linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight);
bool linear_input_gradient_into(const RowGroups& rows, const at::Tensor& weight);
// residual + x·Wᵀ + bias in one pass: x [rows, in], weight [out, in], residual [.., out].
std::optional<at::Tensor> linear_onto(const at::Tensor& residual, const at::Tensor& x,
                                      const at::Tensor& weight, const at::Tensor& bias);

// gradient [width] += the sum of the rows of x [rows, width].
bool column_sum(const Sum& gradient, const at::Tensor& x);
// The sum of the squares of all flat tensors, fp64, one element; undefined where one is out of
// reach.
at::Tensor square_sum(const std::vector<at::Tensor>& parts);

// One pass of AdamW over a flat buffer, see kernels::Adamw.
struct Adamw {
  at::Tensor weight;  // fp32, or the bf16 half of a master whose other half is `low`
  at::Tensor low;
  at::Tensor gradient, first, second;
  at::Tensor scale;  // one fp32 on the device
  at::Tensor pace;   // adamw_pace() on the device
  std::vector<kernels::DecayRun> runs;
  double beta1 = 0, beta2 = 0, epsilon = 0;
};
bool adamw(const Adamw& call);
// What of AdamW differs from step to step, three fp32 on the host; steps count from 1.
at::Tensor adamw_pace(double rate, double beta1, double beta2, std::int64_t step);

}  // namespace braid::ops::fused
