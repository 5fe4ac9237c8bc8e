#pragma once
// See cuda_runtime.h beside this file.

#include <bit>
#include <cmath>
#include <cstdint>

struct __nv_bfloat16 {
  unsigned short bits;
};

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  if (std::isnan(x)) return {0x7fff};
  const auto word = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t to_even = 0x7fffU + ((word >> 16) & 1U);
  return {static_cast<unsigned short>((word + to_even) >> 16)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
