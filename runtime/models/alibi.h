#pragma once
// Slopes of ALiBi (Press et al., 2022).

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace braid::models {

// [heads], fp64, on the CPU. Of n = 2^k heads head i has 2^(-8(i+1)/n). Other counts take those of
// the next lower power of two, then every second one of the next higher.
at::Tensor alibi_slopes(std::int64_t heads);

}  // namespace braid::models
