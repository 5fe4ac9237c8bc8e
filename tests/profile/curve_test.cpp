// Lines between measured points.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

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
      {"beyond it towards the line through its tail, here 10 x", 8, 80},
  };
  for (const Case& c : kCases) EXPECT_DOUBLE_EQ(curve(c.x), c.y) << c.fact;
}

TEST(Curve, OnePointIsALineThroughZeroBehindIt) {
  const Curve curve({{2, 6}});
  EXPECT_DOUBLE_EQ(curve(2), 6);
  EXPECT_DOUBLE_EQ(curve(10), 30);
  EXPECT_DOUBLE_EQ(curve(1), 6) << "half of the work need not take half of the time";
}

TEST(Curve, OfEqualSizesTheMedianCounts) {
  const Curve curve({{1, 2}, {1, 4}, {2, 10}, {2, 8}, {2, 900}});
  EXPECT_DOUBLE_EQ(curve(1), 3);
  EXPECT_DOUBLE_EQ(curve(1.5), 6.5);
  EXPECT_DOUBLE_EQ(curve(2), 10);
}

TEST(Curve, SizesThatFallShareTheMedianOfTheirValues) {
  const Curve dip({{1, 5}, {2, 3}, {3, 9}});
  EXPECT_DOUBLE_EQ(dip(1), 4);
  EXPECT_DOUBLE_EQ(dip(2), 4);
  EXPECT_DOUBLE_EQ(dip(2.5), 6.5);
  const Curve outlier({{1, 10}, {2, 30}, {3, 10}, {4, 11}, {5, 12}, {6, 40}});
  EXPECT_DOUBLE_EQ(outlier(1), 10);
  EXPECT_DOUBLE_EQ(outlier(2), 11) << "the median of 30, 10 and 11";
  EXPECT_DOUBLE_EQ(outlier(6), 40);
}

TEST(Curve, IsContinuousAndNeverFalls) {
  std::mt19937_64 engine(3);
  std::uniform_real_distribution<double> any(0, 10);
  for (int round = 0; round < 500; ++round) {
    Points points;
    for (int i = 0; i < 1 + round % 8; ++i)
      points.emplace_back(std::floor(any(engine)),
                          round % 3 == 0 ? std::floor(any(engine)) : any(engine));
    const Curve curve(points);
    double before = curve(0);
    EXPECT_TRUE(std::isfinite(before));
    for (double x = 0; x < 100; x += 0.125) {
      EXPECT_GE(curve(x), before - 1e-12) << "round " << round << ", x " << x;
      before = curve(x);
      EXPECT_NEAR(curve(x + 1e-9), before, 1e-6) << "round " << round << ", x " << x;
    }
  }
}

// A link of 10 GB/s and 20 us, as three sweeps measure it: over sizes 8 apart as `braid profile`
// does, over sizes 2 apart, and with a last size that is next to the one before it.
constexpr double kLatency = 20e-6, kBandwidth = 10e9;
double link_time(double bytes) { return kLatency + bytes / kBandwidth; }

struct Sweep {
  const char* fact;
  std::vector<double> sizes;
};
std::vector<Sweep> sweeps() {
  Sweep eights{"8 apart", {}}, twos{"2 apart", {}}, close{"a last size next to another", {}};
  for (double size = 1024; size <= 1 << 28; size *= 8) eights.sizes.push_back(size);
  for (double size = 1024; size <= 1 << 25; size *= 2) twos.sizes.push_back(size);
  close.sizes = {1 << 18, 1 << 21, 1 << 24, 1 << 27, 1.01 * (1 << 27)};
  return {eights, twos, close};
}

// The largest relative error at 2 and 10 times the largest size.
double error_beyond(const Points& points) {
  const Curve curve(points);
  double worst = 0;
  for (const double times : {2.0, 10.0}) {
    const double x = times * points.back().first;
    worst = std::max(worst, std::abs(curve(x) / link_time(x) - 1));
  }
  return worst;
}

TEST(Curve, WithoutNoiseIsExactFromTheFirstSizeOn) {
  for (const Sweep& sweep : sweeps()) {
    Points points;
    for (const double size : sweep.sizes) points.emplace_back(size, link_time(size));
    const Curve curve(points);
    for (double x = sweep.sizes.front(); x < 1e11; x *= 1.7)
      EXPECT_NEAR(curve(x), link_time(x), 1e-9 * link_time(x)) << sweep.fact;
  }
}

TEST(Curve, NoiseOfEveryPointIsAllThatIsWrongBeyondTheLast) {
  for (const Sweep& sweep : sweeps())
    for (const double noise : {0.01, 0.05})
      for (unsigned seed = 0; seed < 50; ++seed) {
        std::mt19937_64 engine(seed);
        std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
        Points points;
        for (const double size : sweep.sizes)
          points.emplace_back(size, link_time(size) * factor(engine));
        EXPECT_LT(error_beyond(points), 1.5 * noise) << sweep.fact << ", seed " << seed;
      }
}

TEST(Curve, OnePointCannotBendWhatIsBeyondTheLast) {
  struct Case {
    double factor;     // of one point's time
    double elsewhere;  // largest error beyond the last size, where it is not the last point
    double last;       // where it is
  };
  // The curve passes through its last point, so that an outlier there is told at twice the size: 3
  // in place of 2.
  constexpr Case kCases[] = {
      {0.99, 0.01, 0.005}, {1.01, 0.01, 0.005},  {0.95, 0.03, 0.03},
      {1.05, 0.03, 0.03},  {1.0 / 3, 0.02, 0.2}, {3, 0.27, 0.51},
  };
  for (const Sweep& sweep : sweeps())
    for (const Case& c : kCases)
      for (std::size_t off = 0; off < sweep.sizes.size(); ++off) {
        Points points;
        for (std::size_t i = 0; i < sweep.sizes.size(); ++i)
          points.emplace_back(sweep.sizes[i],
                              link_time(sweep.sizes[i]) * (i == off ? c.factor : 1));
        EXPECT_LE(error_beyond(points), off + 1 < sweep.sizes.size() ? c.elsewhere : c.last)
            << sweep.fact << ", point " << off << " times " << c.factor;
      }
}

// A last size next to one before it, measured 1% low, once made the line flat: 8.8 ms for what
// takes 93 ms.
TEST(Curve, ALastPointThatIsOnePercentLowDoesNotMakeItFlat) {
  const Curve curve({{1e6, 0.12e-3}, {1e7, 1.02e-3}, {8.8e7, 8.82e-3}, {8.85e7, 8.78e-3}});
  EXPECT_NEAR(curve(9.28e8), 92.8e-3, 0.02 * 92.8e-3);
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
