// Figures over predictions and measurements, worked out by hand.

#include "planner/explain/accuracy.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Accuracy, EqualValuesShareTheMeanOfTheirRanks) {
  const std::vector<double> values = {30, 10, 20, 20};
  EXPECT_EQ(ranks_of(values), (std::vector<double>{4, 1, 2.5, 2.5}));
}

struct RankCase {
  const char* fact;
  std::vector<Outturn> pairs;
  std::optional<double> expected;
};

TEST(Accuracy, SpearmanLooksAtTheOrderAlone) {
  const std::vector<RankCase> cases = {
      {"no pairs say nothing", {}, std::nullopt},
      {"one pair says nothing", {{1, 1}}, std::nullopt},
      {"predictions that are all the same say nothing", {{1, 1}, {1, 2}}, std::nullopt},
      {"the same order is one, however far off", {{1, 10}, {2, 1000}, {3, 1001}}, 1},
      {"the reverse is minus one", {{1, 3}, {2, 2}, {3, 1}}, -1},
      // d = (0, 1, -1, 0): 1 - 6·2 / (4·15)
      {"neighbours swapped among four", {{1, 1}, {2, 3}, {3, 2}, {4, 4}}, 0.8},
      // ranks (1, 2.5, 2.5) and (1, 2, 3): 1.5 / √(1.5 · 2)
      {"a tie against an order", {{1, 1}, {2, 2}, {2, 3}}, 0.8660254037844386},
  };
  for (const RankCase& c : cases) {
    const std::optional<double> found = spearman(c.pairs);
    ASSERT_EQ(found.has_value(), c.expected.has_value()) << c.fact;
    EXPECT_NEAR(found.value_or(0), c.expected.value_or(0), 1e-12) << c.fact;
  }
}

TEST(Accuracy, ErrorsAreAgainstWhatWasMeasured) {
  const std::vector<Outturn> pairs = {{1.1, 1}, {0.8, 1}, {4, 4}};  // +10%, -20%, 0
  EXPECT_NEAR(*mean_absolute_error(pairs), 0.1, 1e-12);
  const std::optional<ErrorRange> range = error_range(pairs);
  ASSERT_TRUE(range.has_value());
  EXPECT_NEAR(range->lowest, -0.2, 1e-12);
  EXPECT_NEAR(range->highest, 0.1, 1e-12);
  EXPECT_FALSE(mean_absolute_error({}).has_value());
  EXPECT_FALSE(error_range({}).has_value());
}

TEST(Accuracy, RegretCountsThoseThatWereFaster) {
  const std::vector<double> measured = {2.0, 1.0, 1.25, 1.0};
  EXPECT_EQ(regret_of(measured, 1).place, 1);
  EXPECT_EQ(regret_of(measured, 3).place, 1);  // as fast as the fastest
  EXPECT_EQ(regret_of(measured, 1).excess, 0);
  EXPECT_EQ(regret_of(measured, 2).place, 3);
  EXPECT_NEAR(regret_of(measured, 2).excess, 0.25, 1e-12);
  EXPECT_EQ(regret_of(measured, 0).place, 4);
}

}  // namespace
}  // namespace braid
