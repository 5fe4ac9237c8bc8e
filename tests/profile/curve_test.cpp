// Lines between measured points.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/profile/fit.h"

namespace braid {
namespace {

TEST(Curve, GoesThroughItsPointsAndStraightBetweenThem) {
  const Curve curve({{4, 40}, {1, 10}, {2, 30}});  // in any order
  struct Case {
    const char* fact;
    double x, y;
  };
  constexpr Case kCases[] = {
      {"a measured point", 2, 30},
      {"half way between two", 1.5, 20},
      {"three quarters of the way", 3.5, 37.5},
      {"before the first its value", 0.25, 10},
      {"at nothing too", 0, 10},
      {"the last point", 4, 40},
      {"behind it along the last line", 8, 60},
  };
  for (const Case& c : kCases) EXPECT_DOUBLE_EQ(curve(c.x), c.y) << c.fact;
}

TEST(Curve, OnePointIsALineThroughZeroBehindIt) {
  const Curve curve({{2, 6}});
  EXPECT_DOUBLE_EQ(curve(2), 6);
  EXPECT_DOUBLE_EQ(curve(10), 30);
  EXPECT_DOUBLE_EQ(curve(1), 6) << "half of the work need not take half of the time";
}

TEST(Curve, OfEqualSizesTheMeanCounts) {
  const Curve curve({{1, 2}, {1, 4}, {2, 10}, {2, 6}});
  EXPECT_DOUBLE_EQ(curve(1), 3);
  EXPECT_DOUBLE_EQ(curve(1.5), 5.5);
  EXPECT_DOUBLE_EQ(curve(2), 8);
}

TEST(Curve, NeverFalls) {
  const Curve dip({{1, 5}, {2, 3}, {3, 9}});
  EXPECT_DOUBLE_EQ(dip(2), 5);
  EXPECT_DOUBLE_EQ(dip(2.5), 7);
  const Curve level({{1, 5}, {2, 3}});
  EXPECT_DOUBLE_EQ(level(100), 5) << "the last line is flat, not falling";

  std::mt19937_64 engine(3);
  std::uniform_real_distribution<double> any(0, 10);
  for (int round = 0; round < 200; ++round) {
    Points points;
    for (int i = 0; i < 6; ++i) points.emplace_back(std::floor(any(engine)), any(engine));
    const Curve curve(points);
    double before = 0;
    for (double x = 0; x < 20; x += 0.125) {
      EXPECT_GE(curve(x), before - 1e-12);
      before = curve(x);
    }
  }
}

TEST(Curve, NothingMeasuredIsEmpty) {
  EXPECT_TRUE(Curve().empty());
  EXPECT_TRUE(Curve(Points{}).empty());
  EXPECT_FALSE(Curve({{1, 1}}).empty());
}

TEST(Line, RelativeErrorsLetTheSmallSizesTellTheOffset) {
  // 2 + 3 x, and a largest point that is 1% off: 3 s there, nothing at x = 1.
  const Points points = {{1, 5}, {10, 32}, {100, 302 * 1.01}};
  EXPECT_NEAR(fit_relative_line(points)(1), 5, 0.05);
  EXPECT_GT(std::abs(fit_line(points)(1) - 5), 0.1) << "in seconds the largest one decides";
  const Points exact = {{1, 5}, {10, 32}, {100, 302}};
  EXPECT_NEAR(fit_relative_line(exact).offset, 2, 1e-9);
  EXPECT_NEAR(fit_relative_line(exact).slope, 3, 1e-9);
}

}  // namespace
}  // namespace braid
