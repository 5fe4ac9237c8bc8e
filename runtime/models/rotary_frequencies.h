#pragma once
// Angles per position of a rotary embedding, with the scaling that stretches it to longer contexts.

#include <ATen/core/Tensor.h>

#include "planner/model/layer.h"

namespace braid::models {

// [head_dim / 2] fp64 on the CPU.
at::Tensor rotary_frequencies(const LayerShape& shape);

}  // namespace braid::models
