#pragma once
// Products whose factors are rounded to 8 bits first: each tensor under a scale of its own that
// makes its largest value the format's largest. Activations and weights keep 3 bits of mantissa
// (e4m3); gradients, which spread wider, 2 (e5m2). Sums are fp32.

#include <ATen/core/Tensor.h>

#include "runtime/ops/cuda/kernels.h"

namespace braid::ops {

using kernels::Fp8;

// Whether linear() and its gradients round their factors, on this thread, while it lives.
class Fp8Scope {
 public:
  explicit Fp8Scope(bool on);
  ~Fp8Scope();
  Fp8Scope(const Fp8Scope&) = delete;
  Fp8Scope& operator=(const Fp8Scope&) = delete;

  static bool on();

 private:
  bool before_;
};

// x as a product of 8 bits sees it, in fp32.
at::Tensor as_fp8(const at::Tensor& x, Fp8 format);

}  // namespace braid::ops
