#include "runtime/ops/split_master.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

at::Tensor floats_of(const std::vector<std::uint32_t>& bits) {
  std::vector<float> values;
  values.reserve(bits.size());
  for (const std::uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  return at::tensor(values);
}

TEST(SplitMaster, HalvesTogetherAreTheMasterToTheBit) {
  // Halves of the last bf16 digit both ways, numbers that round up into the next exponent, the
  // smallest and the largest, both signs of zero.
  std::vector<std::uint32_t> bits;
  for (const std::uint32_t high : {0x0000U, 0x0001U, 0x3f80U, 0x3fffU, 0x7f7fU, 0x8000U, 0xbfffU})
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      bits.push_back((high << 16U) | low);
  const at::Tensor master = floats_of(bits);
  const at::Tensor weight = at::empty(master.sizes(), at::kBFloat16);
  const at::Tensor low = at::empty(master.sizes(), at::kShort);
  split_master(master, weight, low);
  EXPECT_TRUE(join_master(weight, low).view(at::kInt).equal(master.view(at::kInt)));
}

TEST(SplitMaster, TheUpperHalfIsANearestBf16) {
  const at::Tensor master = random_tensor({4096}, 1, at::kFloat);
  const at::Tensor weight = at::empty(master.sizes(), at::kBFloat16);
  const at::Tensor low = at::empty(master.sizes(), at::kShort);
  split_master(master, weight, low);
  const at::Tensor rounded = master.to(at::kBFloat16);
  const at::Tensor error = weight.to(at::kFloat).sub(master).abs();
  EXPECT_TRUE(error.le(rounded.to(at::kFloat).sub(master).abs()).all().item<bool>());
}

}  // namespace
}  // namespace braid::ops
