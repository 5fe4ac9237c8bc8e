#include "runtime/ops/random.h"

#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <numbers>

#include "planner/core/error.h"

namespace braid::ops {

namespace {

// splitmix64 (Steele, Lea and Flood, 2014): a counter by the golden ratio, then a finaliser.
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr std::uint64_t kFirstFactor = 0xBF58476D1CE4E5B9;
constexpr std::uint64_t kSecondFactor = 0x94D049BB133111EB;

constexpr std::uint64_t finalised(std::uint64_t z) {
  z = (z ^ (z >> 30)) * kFirstFactor;
  z = (z ^ (z >> 27)) * kSecondFactor;
  return z ^ (z >> 31);
}

constexpr std::int64_t as_signed(std::uint64_t bits) { return std::bit_cast<std::int64_t>(bits); }

// Tensors have signed integers alone: their shift drags the sign along, which a mask takes away.
at::Tensor shifted_right(const at::Tensor& z, int by) {
  return at::bitwise_right_shift(z, by).bitwise_and_(as_signed(~std::uint64_t{0} >> by));
}

// finalised(key + (index + 1)·golden), element by element.
at::Tensor hashes(std::uint64_t key, const at::Tensor& indices) {
  at::Tensor z = at::mul(indices, as_signed(kGolden)).add_(as_signed(key + kGolden));
  z.bitwise_xor_(shifted_right(z, 30)).mul_(as_signed(kFirstFactor));
  z.bitwise_xor_(shifted_right(z, 27)).mul_(as_signed(kSecondFactor));
  return z.bitwise_xor_(shifted_right(z, 31));
}

// Rows of dim 0 that dropout draws at a time: a draw takes 24 bytes an element, x may take 2.
constexpr std::int64_t kElementsAtATime = std::int64_t{1} << 22;

}  // namespace

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
  }
  return finalised(finalised(seed + kGolden) ^ hash);
}

at::Tensor uniform_at(std::uint64_t key, const at::Tensor& indices) {
  return shifted_right(hashes(key, indices), 11).to(at::kDouble).mul_(0x1p-53);
}

at::Tensor normal_at(std::uint64_t key, const at::Tensor& indices) {
  // Box and Muller; 1 - u lies in (0, 1], where the logarithm is finite.
  at::Tensor radius = uniform_at(key, indices).neg_().add_(1).log_().mul_(-2).sqrt_();
  const std::uint64_t other = finalised(key ^ kGolden);
  return radius.mul_(uniform_at(other, indices).mul_(2 * std::numbers::pi).cos_());
}

at::Tensor dropout(const at::Tensor& x, double probability, std::uint64_t key,
                   const at::Tensor& indices) {
  internal_check(x.sizes() == indices.sizes(), "dropout wants one index for each element");
  at::Tensor y = at::empty_like(x, x.options(), at::MemoryFormat::Contiguous);
  if (x.is_meta() || x.numel() == 0) return y;
  const at::Tensor zero = at::zeros({}, x.options());
  const std::int64_t rows = x.size(0);
  const std::int64_t step = std::max<std::int64_t>(1, kElementsAtATime / (x.numel() / rows));
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    const std::int64_t count = std::min(step, rows - begin);
    const at::Tensor kept = uniform_at(key, indices.narrow(0, begin, count)).ge(probability);
    const at::Tensor scaled = at::div(x.narrow(0, begin, count), 1 - probability);
    at::Tensor part = y.narrow(0, begin, count);
    at::where_out(part, kept, scaled, zero);
  }
  return y;
}

}  // namespace braid::ops
