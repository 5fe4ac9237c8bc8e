#pragma once
// LayerNorm and RMSNorm over the last dim, statistics in fp32 (fp64 for fp64).

#include <ATen/core/Tensor.h>

namespace braid::ops {

struct LayerNorm {
  at::Tensor y;
  at::Tensor statistics;  // [.., 2]: mean and 1/sigma of each row
};
LayerNorm layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon);
// What a backward does beside its own: each is left out where it is undefined.
struct BesideNorm {
  at::Tensor residual = {};  // the gradient that went round the norm: added to dx
  at::Tensor again = {};     // as x: becomes y again; may be dy, which is used up then
  at::Tensor bias = {};      // of a LayerNorm's y
};
struct NormGradients {
  at::Tensor dx;
  // [.., width], of a LayerNorm [.., 2·width], in the statistics' precision: rows that add up to
  // the gradient of the weight, and behind it that of the bias. How many is up to the kernel.
  at::Tensor rows;
};
NormGradients layer_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                  const at::Tensor& statistics, const at::Tensor& weight,
                                  const BesideNorm& beside = {});

struct RmsNorm {
  at::Tensor y;
  at::Tensor statistics;  // [.., 1]: 1/rms of each row
};
// As Hugging Face's Llama: normalised in the statistics' precision, rounded to x's, then times the
// weight. (The GPU's kernels round once, after the weight.)
RmsNorm rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
NormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                const at::Tensor& statistics, const at::Tensor& weight,
                                const BesideNorm& beside = {});

}  // namespace braid::ops
