#include "runtime/models/rotary_frequencies.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>

namespace braid::models {

namespace {

double stretched(double frequency, const RotaryScaling& scaling) {
  if (scaling.factor == 1) return frequency;
  const double divided = frequency / scaling.factor;
  if (scaling.original_positions == 0) return divided;
  const double turns =
      static_cast<double>(scaling.original_positions) * frequency / (2 * std::numbers::pi);
  if (turns < scaling.low_frequency) return divided;
  if (turns > scaling.high_frequency) return frequency;
  const double share =
      (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
  return (1 - share) * divided + share * frequency;
}

}  // namespace

at::Tensor rotary_frequencies(const LayerShape& shape) {
  const std::int64_t pairs = shape.head_dim / 2;
  at::Tensor frequencies = at::empty({pairs}, at::kDouble);
  auto* out = frequencies.data_ptr<double>();
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(shape.head_dim);
    out[i] = stretched(std::pow(shape.rotary_base, -exponent), shape.rotary_scaling);
  }
  return frequencies;
}

}  // namespace braid::models
