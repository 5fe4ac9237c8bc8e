#include "runtime/comm/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace braid::comm {
namespace {

template <typename Stored>
Stored reduced(Reduction reduction, DataType type, std::vector<Stored> values) {
  std::vector<const std::byte*> inputs;
  inputs.reserve(values.size());
  for (const Stored& value : values) inputs.push_back(reinterpret_cast<const std::byte*>(&value));
  Stored out{};
  reduce_in_order(reduction, type, inputs, reinterpret_cast<std::byte*>(&out), 1);
  return out;
}

TEST(Reduce, Bf16RoundsToTheNearestEven) {
  struct Case {
    const char* fact;
    std::uint32_t fp32;
    std::uint16_t bf16;
  };
  const Case cases[] = {
      {"an exact value stays", 0x3F800000, 0x3F80},
      {"below half goes down", 0x3F807FFF, 0x3F80},
      {"a tie at an even one goes down", 0x3F808000, 0x3F80},
      {"a tie at an odd one goes up", 0x3F818000, 0x3F82},
      {"above half goes up", 0x3F808001, 0x3F81},
      {"the sign does not matter", 0xBF818000, 0xBF82},
      {"the largest overflows to infinity", 0x7F7FFFFF, 0x7F80},
      {"infinity stays", 0xFF800000, 0xFF80},
      {"a NaN whose high bits are zero stays a NaN", 0x7F800001, 0x7FC0},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(to_bf16(std::bit_cast<float>(c.fp32)), c.bf16) << c.fact;
  }
}

TEST(Reduce, SumsFromLeftToRight) {
  EXPECT_EQ(reduced<float>(Reduction::sum, DataType::fp32, {1e8F, -1e8F, 1.0F}), 1.0F);
  EXPECT_EQ(reduced<float>(Reduction::sum, DataType::fp32, {1e8F, 1.0F, -1e8F}), 0.0F);
}

TEST(Reduce, IntegersWrapAround) {
  using Limits = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(reduced<std::int64_t>(Reduction::sum, DataType::int64, {Limits::max(), 1}),
            Limits::min());
  EXPECT_EQ(reduced<std::int64_t>(Reduction::max, DataType::int64, {-5, 3, -9}), 3);
}

TEST(Reduce, AMaximumWithANanIsANanWhereverItStands) {
  const double nan = std::nan("");
  EXPECT_TRUE(std::isnan(reduced<double>(Reduction::max, DataType::fp64, {nan, 1, 2})));
  EXPECT_TRUE(std::isnan(reduced<double>(Reduction::max, DataType::fp64, {1, nan, 2})));
  EXPECT_TRUE(std::isnan(reduced<double>(Reduction::max, DataType::fp64, {1, 2, nan})));
  EXPECT_EQ(reduced<double>(Reduction::max, DataType::fp64, {-3, -1, -2}), -1);
}

TEST(Reduce, TheOutputMayBeAnInput) {
  std::vector<float> a(3000, 1.0F), b(3000, 2.0F);
  const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(a.data()),
                               reinterpret_cast<const std::byte*>(b.data())};
  reduce_in_order(Reduction::sum, DataType::fp32, inputs, reinterpret_cast<std::byte*>(b.data()),
                  3000);
  EXPECT_EQ(b, std::vector<float>(3000, 3.0F));
  EXPECT_EQ(a, std::vector<float>(3000, 1.0F));
}

}  // namespace
}  // namespace braid::comm
