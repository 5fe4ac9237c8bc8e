// Corrections from measured steps: what was put in comes out.

#include "planner/cost/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace braid {
namespace {

// A step whose terms take so many seconds, one after the other.
struct Step {
  double compute = 0, tensor = 0, sharding = 0, transfer = 0, update = 0;
  double time(const Correction& c) const {
    return compute * c.compute + tensor * c.tensor + sharding * c.sharding + transfer * c.transfer +
           update * c.update + c.step_overhead.value();
  }
};

Correction factors(double compute, double tensor, double sharding, double update = 1) {
  Correction correction;
  correction.compute = compute;
  correction.tensor = tensor;
  correction.sharding = sharding;
  correction.update = update;
  return correction;
}

const std::vector<Step> kSteps = {
    {.compute = 1.0, .update = 0.1},
    {.compute = 0.9, .tensor = 0.5, .update = 0.05},
    {.compute = 0.8, .sharding = 0.6, .update = 0.02},
    {.compute = 1.2, .tensor = 0.2, .sharding = 0.1, .update = 0.1},
    {.compute = 1.0, .transfer = 0.3, .update = 0.05},
    {.compute = 0.6, .tensor = 0.9},
    {.compute = 2.0, .sharding = 0.9, .update = 0.2},
    {.compute = 0.5, .transfer = 0.4, .update = 0.1},
};

std::vector<CalibrationCase> cases_of(const Correction& truth) {
  std::vector<CalibrationCase> cases;
  cases.reserve(kSteps.size());
  for (const Step& step : kSteps)
    cases.push_back({.measured = Seconds(step.time(truth)),
                     .price = [step](const Correction& c) { return Seconds(step.time(c)); }});
  return cases;
}

TEST(Calibrate, NoCasesNoCorrection) {
  const Correction none = calibrate({});
  EXPECT_EQ(none.compute, 1);
  EXPECT_EQ(none.step_overhead, Seconds(0));
}

TEST(Calibrate, ExactPredictionsStayAsTheyAre) {
  const Correction found = calibrate(cases_of({}));
  EXPECT_NEAR(found.compute, 1, 1e-6);
  EXPECT_NEAR(found.tensor, 1, 1e-6);
  EXPECT_NEAR(found.sharding, 1, 1e-6);
  EXPECT_NEAR(found.step_overhead.value(), 0, 1e-6);
}

TEST(Calibrate, FactorsComeOutOfStepTimesAlone) {
  const Correction truth = factors(1.1, 1.3, 0.8);
  const std::vector<CalibrationCase> cases = cases_of(truth);
  const Correction found = calibrate(cases);
  EXPECT_GT(mean_error(cases, {}), 0.05);
  EXPECT_LT(mean_error(cases, found), 0.01);
  EXPECT_NEAR(found.compute, truth.compute, 0.03);
  EXPECT_NEAR(found.tensor, truth.tensor, 0.05);
  EXPECT_NEAR(found.sharding, truth.sharding, 0.05);
  EXPECT_NEAR(found.context, 1, 1e-9) << "no run depends on it";
}

TEST(Calibrate, MeasuredTermsDecideWhereStepTimesCannot) {
  // Compute and update always in one proportion: no step time tells them apart.
  const auto price = [](const Correction& c) { return Seconds(0.8 * c.compute + 0.2 * c.update); };
  CalibrationCase one{.measured = price(factors(1.05, 1, 1, 1.5)), .price = price};
  one.terms = {{&Correction::compute, Seconds(0.8), Seconds(0.84)},
               {&Correction::update, Seconds(0.2), Seconds(0.3)}};
  const Correction found = calibrate({one});
  EXPECT_NEAR(found.compute, 1.05, 1e-3);
  EXPECT_NEAR(found.update, 1.5, 1e-3);
  one.terms.clear();
  EXPECT_LT(calibrate({one}).update, 1.2);
}

TEST(Calibrate, ATermOfLessThanAHundredthOfTheStepTellsNothing) {
  const auto price = [](const Correction& c) { return Seconds(c.compute + 0.005 * c.update); };
  CalibrationCase one{.measured = price({}), .price = price};
  one.terms = {{&Correction::update, Seconds(0.005), Seconds(0.05)}};
  EXPECT_NEAR(calibrate({one}).update, 1, 1e-3);
}

TEST(Calibrate, OneWildTermDoesNotMoveTheMedian) {
  std::vector<CalibrationCase> cases = cases_of(factors(1.2, 1, 1));
  for (std::size_t i = 0; i < cases.size(); ++i)
    cases[i].terms = {{&Correction::compute, Seconds(kSteps[i].compute),
                       Seconds(kSteps[i].compute * (i == 0 ? 9.0 : 1.2))}};
  EXPECT_NEAR(calibrate(cases).compute, 1.2, 0.01);
}

TEST(Calibrate, NoisySteps) {
  // One step in eight took half as long again, for no reason that a factor has.
  std::vector<CalibrationCase> cases = cases_of({});
  cases[5].measured = 1.5 * cases[5].measured;
  const double sure = calibrate(cases).tensor;
  for (CalibrationCase& c : cases) c.noise = 0.2;
  const double doubtful = calibrate(cases).tensor;
  EXPECT_GT(sure, 1.2);
  EXPECT_LT(doubtful - 1, (sure - 1) / 2);
}

TEST(Calibrate, NothingBecomesNegative) {
  const auto price = [](const Correction& c) {
    return Seconds(c.compute + c.tensor + c.step_overhead.value());
  };
  const CalibrationCase one{.measured = Seconds(0.01), .price = price};
  const Correction found = calibrate({one});
  EXPECT_GE(found.compute, 0.1);
  EXPECT_GE(found.tensor, 0.1);
  EXPECT_EQ(found.step_overhead, Seconds(0));
}

TEST(Calibrate, TheLongestPathMayChangeOnTheWay) {
  // A pipeline's iteration is the longest of several sums.
  const auto price = [](const Correction& c) {
    return Seconds(std::max(1.0 * c.compute, 0.5 * c.compute + 0.6 * c.transfer));
  };
  const CalibrationCase one{.measured = Seconds(1.3), .price = price};
  EXPECT_LT(mean_error({one}, calibrate({one})), 0.03);
}

TEST(Calibrate, TheMedianIsByWeight) {
  EXPECT_EQ(weighted_median({{3, 1}, {1, 1}, {2, 1}}), 2);
  EXPECT_EQ(weighted_median({{1, 1}, {5, 10}, {9, 1}}), 5);
  EXPECT_EQ(weighted_median({{1, 5}, {2, 1}, {3, 1}}), 1);
  EXPECT_EQ(weighted_median({}), 1);
}

}  // namespace
}  // namespace braid
