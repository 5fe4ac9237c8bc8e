#pragma once
// See cuda_runtime.h beside this file.

#include <cmath>
#include <cstdint>

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

// Rounds to nearest, ties to even, and stops at the largest finite value.
inline std::uint8_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t,
                                          __nv_fp8_interpretation_t kind) {
  const bool wide = kind == __NV_E5M2;
  const int mantissa = wide ? 2 : 3, bias = wide ? 15 : 7;
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  const float largest = wide ? 57344.0F : 448.0F;
  const float size = std::fmin(std::fabs(x), largest);
  if (size == 0) return sign;
  const int exponent = std::fmax(std::ilogb(size), 1 - bias);
  // In units of the last bit; a carry into the next power of two is right as it stands.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, mantissa - exponent)));
  return static_cast<std::uint8_t>(sign | (((exponent + bias - 1) << mantissa) + units));
}
