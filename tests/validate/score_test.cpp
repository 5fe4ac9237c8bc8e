#include "planner/validate/score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "planner/core/json.h"
#include "planner/validate/fit.h"
#include "planner/validate/report.h"
#include "tests/support/files.h"
#include "tests/validate/runs.h"

namespace braid {
namespace {

// Predictions against measurements of one group, by hand.
Pricing pricing_of(const std::vector<MeasuredRun>& runs,
                   const std::vector<std::pair<double, double>>& pairs) {
  Pricing pricing;
  for (std::size_t i = 0; i < pairs.size(); ++i)
    pricing.figures.push_back({.run = &runs[i],
                               .what = "seconds",
                               .outturn = {pairs[i].first, pairs[i].second},
                               .rankable = true,
                               .lower = pairs[i].first * 0.9,
                               .upper = pairs[i].first * 1.1});
  return pricing;
}

TEST(Score, CountsErrorRankAndRegretByGroup) {
  const std::vector<MeasuredRun> runs(3, gpt_run(0, 1, 1, 8, 1, 64));
  // The pick takes 1.2 where 1.0 was to be had; the two fastest are swapped.
  const auto scores = score(pricing_of(runs, {{1.0, 1.2}, {1.1, 1.0}, {3.0, 2.0}}));
  ASSERT_EQ(scores.size(), 1U);
  EXPECT_EQ(scores[0].rows, 3);
  EXPECT_NEAR(scores[0].error, (1 - 1 / 1.2 + 0.1 + 0.5) / 3, 1e-12);
  EXPECT_NEAR(*scores[0].spearman, 0.5, 1e-12);
  EXPECT_NEAR(*scores[0].regret, 0.2, 1e-12);
  EXPECT_EQ(scores[0].within, 1);
}

TEST(Score, RanksOnlyRunsOfOneBatch) {
  std::vector<MeasuredRun> runs(2, gpt_run(0, 1, 1, 8, 1, 64));
  runs[1].global_batch = 128;
  const auto scores = score(pricing_of(runs, {{1, 1}, {2, 2}}));
  EXPECT_EQ(scores[0].spearman, std::nullopt);
  EXPECT_EQ(scores[0].regret, std::nullopt);
}

TEST(Score, SaysWhyARunIsNotPriced) {
  std::vector<MeasuredRun> runs = {gpt_run(1, 1, 1, 1, 1, 1), gpt_run(2, 1, 1, 1, 1, 1)};
  runs[0].set = "elsewhere";
  runs[0].gpu = "abacus";
  runs[1].hidden = 0;
  const Pricing pricing = price_runs(runs, described_setups());
  EXPECT_TRUE(pricing.figures.empty());
  ASSERT_EQ(pricing.unpriced.size(), 2U);
  EXPECT_TRUE(holds(pricing.unpriced[0].reason, "no setup"));
  EXPECT_TRUE(holds(pricing.unpriced[1].reason, "shape"));
  EXPECT_TRUE(scores_json(pricing, {}).at("sets").at(0).at("mape").is_null());
}

TEST(Score, ASetThatNobodyDescribedTakesASetupWithItsDevice) {
  MeasuredRun run = gpt_run(1, 1, 1, 8, 1, 64);
  run.set = "elsewhere";
  run.gpu = "a100-sxm4-40gb";
  EXPECT_EQ(price_runs({{run}}, described_setups()).figures.size(), 1U);
}

TEST(Score, RunsThatDidNotRunAreLeftOut) {
  MeasuredRun run = gpt_run(1, 1, 1, 8, 1, 64);
  run.failed = true;
  const Pricing pricing = price_runs({{run}}, described_setups());
  EXPECT_TRUE(pricing.figures.empty());
  EXPECT_TRUE(pricing.unpriced.empty());
}

TEST(Reserves, AreKeptFreeUpToWhatADeviceCanReserve) {
  constexpr double kGiB = 1 << 30;
  EXPECT_DOUBLE_EQ(safe_reserve(10 * kGiB, 80 * kGiB), 12.1 * kGiB);
  EXPECT_LT(safe_reserve(70 * kGiB, 80 * kGiB), 80 * kGiB);
  EXPECT_GE(safe_reserve(79 * kGiB, 80 * kGiB), 79 * kGiB);
  MeasuredRun run = gpt_run(1, 1, 1, 1, 1, 1);
  run.ranks = {{.allocated = 10 * kGiB, .reserved = 11 * kGiB},
               {.allocated = 10 * kGiB, .reserved = 13 * kGiB}};
  const ReserveScore score = score_reserves({{run}}, described_setups());
  EXPECT_EQ(score.ranks, 2);
  EXPECT_EQ(score.under, 1);
  EXPECT_NEAR(score.over, (12.1 / 11 + 12.1 / 13) / 2 - 1, 1e-9);
}

TEST(Scatter, DrawsAPointForEveryFigure) {
  const std::vector<MeasuredRun> runs(3, gpt_run(0, 1, 1, 8, 1, 64));
  const std::string svg = scatter_svg(pricing_of(runs, {{1.0, 1.2}, {1.1, 1.0}, {3.0, 2.0}}));
  std::size_t points = 0;
  for (auto at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++points;
  EXPECT_EQ(points, 3U);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

// Runs made by a setup with other figures than the expected ones.
std::vector<MeasuredRun> runs_of(const std::vector<RunSetup>& truth) {
  std::vector<MeasuredRun> runs = gpt_runs();
  const Pricing pricing = price_runs(runs, truth);
  for (std::size_t i = 0; i < runs.size(); ++i)
    runs[i].seconds = pricing.figures[i].outturn.predicted;
  return runs;
}

TEST(Fit, FindsFiguresThatExplainTheRuns) {
  std::vector<RunSetup> truth = described_setups();
  const Calibration single = calibrations().front();
  for (const Parameter& parameter : parameters_of(truth, single))
    for (double* place : parameter.places) *place = parameter.expected;
  for (RunSetup& setup : truth) {
    setup.devices.front().gemm *= 0.8;
    setup.program.host_forward *= 1.5;
  }
  const std::vector<MeasuredRun> runs = runs_of(truth);
  std::vector<RunSetup> setups = described_setups();
  fit(setups, single, runs);
  EXPECT_LT(score(price_runs(runs, setups)).front().error, 0.01);
  std::vector<RunSetup> again = described_setups();
  fit(again, single, runs);
  EXPECT_EQ(again.front().devices.front().gemm, setups.front().devices.front().gemm);
}

TEST(Fit, LeavesFiguresAloneThatNoRunSpeaksOf) {
  std::vector<RunSetup> setups = described_setups();
  const Calibration single = calibrations().front();
  fit(setups, single, {});
  for (const Parameter& parameter : parameters_of(setups, single))
    EXPECT_NEAR(*parameter.places.front() / parameter.expected, 1, 1e-9) << parameter.name;
}

TEST(Fit, CrossValidationPredictsEveryRunOnce) {
  const std::vector<MeasuredRun> runs = gpt_runs();
  std::vector<int> seen(runs.size(), 0);
  for (const Fold& fold : cross_validate(runs, 3, {.rounds = 1, .progress = {}}))
    for (const MeasuredRun& run : fold.runs) ++seen[std::stoul(run.id)];
  EXPECT_EQ(seen, std::vector<int>(runs.size(), 1));
}

}  // namespace
}  // namespace braid
