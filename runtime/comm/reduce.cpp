#include "runtime/comm/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace braid::comm {

namespace {

struct Bf16 {
  std::uint16_t bits;
};

float widen(Bf16 value) { return from_bf16(value.bits); }
float widen(float value) { return value; }
double widen(double value) { return value; }
// Integers wrap around, as on a device; the sum of signed ones would be undefined.
std::uint64_t widen(std::int64_t value) { return static_cast<std::uint64_t>(value); }

void narrow(float value, Bf16& out) { out.bits = to_bf16(value); }
void narrow(float value, float& out) { out = value; }
void narrow(double value, double& out) { out = value; }
void narrow(std::uint64_t value, std::int64_t& out) { out = static_cast<std::int64_t>(value); }

template <typename Real>
Real larger(Real a, Real b) {
  return a < b || std::isnan(b) ? b : a;
}
std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) ? b : a;
}

// Block by block, so that sums stay in the cache and `out` is written after its inputs were read.
template <typename Stored>
void reduce(Reduction reduction, std::span<const std::byte* const> inputs, std::byte* out,
            std::int64_t count) {
  using Wide = decltype(widen(Stored{}));
  constexpr std::int64_t kBlock = 1024;
  std::array<Wide, kBlock> sums;
  std::array<Stored, kBlock> values;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const auto length = static_cast<std::size_t>(std::min(kBlock, count - first));
    const auto offset = static_cast<std::size_t>(first) * sizeof(Stored);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      std::memcpy(values.data(), inputs[k] + offset, length * sizeof(Stored));
      if (k == 0) {
        for (std::size_t i = 0; i < length; ++i) sums[i] = widen(values[i]);
      } else if (reduction == Reduction::sum) {
        for (std::size_t i = 0; i < length; ++i) sums[i] += widen(values[i]);
      } else {
        for (std::size_t i = 0; i < length; ++i) sums[i] = larger(sums[i], widen(values[i]));
      }
    }
    for (std::size_t i = 0; i < length; ++i) narrow(sums[i], values[i]);
    std::memcpy(out + offset, values.data(), length * sizeof(Stored));
  }
}

}  // namespace

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

std::uint16_t to_bf16(float value) {
  if (std::isnan(value)) return 0x7FC0;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Half a unit of what remains, less one where that is even already: ties go to even.
  const std::uint32_t rounding = 0x7FFFU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>((bits + rounding) >> 16U);
}

void reduce_in_order(Reduction reduction, DataType type, std::span<const std::byte* const> inputs,
                     std::byte* out, std::int64_t count) {
  internal_check(!inputs.empty(), "a reduction needs an input");
  switch (type) {
    case DataType::int64:
      return reduce<std::int64_t>(reduction, inputs, out, count);
    case DataType::fp64:
      return reduce<double>(reduction, inputs, out, count);
    case DataType::fp32:
      return reduce<float>(reduction, inputs, out, count);
    case DataType::bf16:
      return reduce<Bf16>(reduction, inputs, out, count);
  }
}

}  // namespace braid::comm
