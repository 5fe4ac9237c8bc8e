// The planner's price of random plans against the referee's.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "planner/cost/make_cost_model.h"
#include "planner/simulate/price_plan.h"
#include "tests/referee/random_case.h"
#include "tests/referee/referee.h"

namespace braid::referee {
namespace {

// BRAID_LONG_TESTS=1 takes more.
int num_problems() { return std::getenv("BRAID_LONG_TESTS") != nullptr ? 50'000 : 2'000; }

double planner_price(const Plan& plan) {
  const auto cost = make_cost_model({.precision = plan.precision,
                                     .gradient_precision = plan.gradient_precision,
                                     .global_batch = plan.global_batch},
                                    plan.model, plan.cluster, nullptr);
  return price_plan(plan, *cost).iteration.value();
}

// The planner's price of a random plan over the referee's, less one.
class Deviation {
 public:
  explicit Deviation(int seed) : plan_(CaseDice(static_cast<std::uint64_t>(seed)).plan()) {
    planner_ = planner_price(plan_);
  }
  double from(const Simplifications& simple) const {
    return planner_ / price(plan_, simple).value() - 1;
  }
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
  double planner_ = 0;
};

TEST(Referee, AgreesWithThePlannerWhereBothFollowItsStatements) {
  double farthest = 0;
  for (int seed = 0; seed < num_problems() && !HasFailure(); ++seed) {
    const Deviation planner(seed);
    const double off = std::abs(planner.from(Simplifications::of_the_planner()));
    farthest = std::max(farthest, off);
    EXPECT_LT(off, 1e-9) << "seed " << seed << "\n" << plan_text(planner.plan());
  }
  RecordProperty("farthest", fmt::format("{:.1e}", farthest));
}

// By definition the head's gradients hide behind the blocks that are there, chunks differ, and
// redistribution is as slow as its slowest wire.
TEST(Referee, ByDefinitionAloneNineOfTenPlansAreWithinOnePercent) {
  int within = 0;
  for (int seed = 0; seed < num_problems(); ++seed)
    if (std::abs(Deviation(seed).from({})) < 0.01) ++within;
  EXPECT_GT(within, num_problems() * 9 / 10);
  RecordProperty("within_one_percent", within);
}

// The deviations that one simplification may cause, as shares of the step.
struct Case {
  const char* fact;
  bool Simplifications::*simplification;
  double least, most;
};

class StatedSimplification : public testing::TestWithParam<Case> {};

TEST_P(StatedSimplification, StaysWithinItsBounds) {
  const Case& c = GetParam();
  Simplifications others = Simplifications::of_the_planner();
  others.*c.simplification = false;
  double least = 0, most = 0;
  for (int seed = 0; seed < num_problems(); ++seed) {
    const double off = Deviation(seed).from(others);
    EXPECT_TRUE(c.least <= off && off <= c.most) << off << " at seed " << seed;
    least = std::min(least, off);
    most = std::max(most, off);
  }
  RecordProperty("least", fmt::format("{:.4f}", least));
  RecordProperty("most", fmt::format("{:.4f}", most));
}

INSTANTIATE_TEST_SUITE_P(
    Planner, StatedSimplification,
    testing::Values(
        // Too much where the busiest device is not on the slowest port; too little by microseconds
        // where a link inside a node has a longer latency than the network.
        Case{"even_redistribution", &Simplifications::even_redistribution, -0.02, 0.10},
        // Plans whose head is sharded as no block of its stage is.
        Case{"blocks_like_head", &Simplifications::blocks_like_head, -0.08, 0.20},
        // Cuts at random places: chunks of one layer beside chunks of five.
        Case{"even_chunks", &Simplifications::even_chunks, -0.45, 0.20},
        Case{"farthest_wrap", &Simplifications::farthest_wrap, -1e-9, 0.01}),
    [](const auto& test) { return test.param.fact; });

}  // namespace
}  // namespace braid::referee
