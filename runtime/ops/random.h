#pragma once
// Numbers that are a function of (key, index): any rank can make any part of a tensor alone, in any
// order, and gets what every other layout gets.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace braid::ops {

std::uint64_t random_key(std::uint64_t seed, std::string_view name);

// The elements at `indices` (int64, any shape, any device) of an endless sequence: fp64 in [0, 1).
at::Tensor uniform_at(std::uint64_t key, const at::Tensor& indices);
// Standard normal, fp64.
at::Tensor normal_at(std::uint64_t key, const at::Tensor& indices);

// Dropout whose mask depends on the key and the elements' indices alone: nothing to save.
// y = x / (1 - p) where uniform_at(key, indices) >= p, else 0. Its own gradient.
at::Tensor dropout(const at::Tensor& x, double probability, std::uint64_t key,
                   const at::Tensor& indices);

}  // namespace braid::ops
