#include "runtime/ops/fp8.h"

#include <ATen/ops/full_like.h>

#include <utility>

namespace braid::ops {

namespace {

bool& is_on() {
  thread_local bool on = false;
  return on;
}

}  // namespace

Fp8Scope::Fp8Scope(bool on) : before_(std::exchange(is_on(), on)) {}
Fp8Scope::~Fp8Scope() { is_on() = before_; }
bool Fp8Scope::on() { return is_on(); }

at::Tensor as_fp8(const at::Tensor& x, Fp8 format) {
  const at::ScalarType type = format == Fp8::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
  constexpr double kLargestE4m3 = 448, kLargestE5m2 = 57344;
  const double largest = format == Fp8::e4m3 ? kLargestE4m3 : kLargestE5m2;
  const at::Tensor wide = x.to(at::kFloat);
  at::Tensor most = wide.abs().amax();
  most = most.masked_fill(most.eq(0), largest);
  // Above kLargestFp8Factor the quotient, or its inverse, would leave the range of fp32.
  const double least = largest / kernels::kLargestFp8Factor;
  most = most.clamp_min(least);
  const at::Tensor factor = at::full_like(most, largest).div(most);
  return wide.mul(factor).to(type).to(at::kFloat).mul(most.div(largest));
}

}  // namespace braid::ops
