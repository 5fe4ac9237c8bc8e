// Units: what they compute (what they refuse is in tests/compile_fail).

#include "planner/core/units.h"

#include <gtest/gtest.h>

#include <cmath>

namespace braid {
namespace {

using namespace literals;

static_assert(Bytes() == Bytes(0), "a quantity begins at zero");
static_assert(1_KiB == Bytes(1024) && 1_MiB == 1024 * 1_KiB && 1_GiB == 1024 * 1_MiB);
static_assert(3_KiB - 1_KiB + 2_KiB == 2 * 2_KiB);
static_assert(10_KiB / 4 == Bytes(2560), "a part of a quantity keeps its unit");
static_assert(10_KiB / 4_KiB == 2.5, "two quantities of a kind give a number");
static_assert(1_KiB < 1_MiB);

TEST(Units, RatesTurnWorkIntoTime) {
  EXPECT_EQ(Bytes(1'000'000'000) / BytesPerSecond(100e9), Seconds(0.01));
  EXPECT_EQ(Flops(312e12) / FlopsPerSecond(156e12), Seconds(2));
}

TEST(Units, ForeverIsLongerThanAnything) {
  EXPECT_LT(Seconds(1e300), kForever);
  EXPECT_TRUE(std::isinf(kForever.value()));
}

struct ScaleCase {
  const char* fact;
  std::int64_t size;
  double factor;
  std::int64_t expected;
};

constexpr ScaleCase kScales[] = {
    {"a whole result stays", 100, 0.5, 50},
    {"a fraction rounds up", 101, 0.5, 51},
    {"the least fraction rounds up", 1, 1e-9, 1},
    {"nothing stays nothing", 0, 3.7, 0},
    {"one leaves all as it is", 123'456'789, 1.0, 123'456'789},
};

TEST(Units, ScalingNeverCountsTooLittle) {
  for (const ScaleCase& c : kScales)
    EXPECT_EQ(scaled(Bytes(c.size), c.factor), Bytes(c.expected)) << c.fact;
}

}  // namespace
}  // namespace braid
