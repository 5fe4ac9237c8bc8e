#include "runtime/train/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/files.h"

namespace braid::train {
namespace {

StepMetrics example() {
  return {.step = 119,
          .loss = 3.21449,
          .gradient_norm = 0.8712,
          .learning_rate = 2.94e-4,
          .tokens = 41'230,
          .seconds = Seconds(1),
          .mfu = 0.4812,
          .allocated = Bytes(10'522'669'875),   // 9.8 GiB
          .predicted = Bytes(10'844'792'422)};  // 10.1 GiB
}

TEST(Progress, ALineByHand) {
  StepMetrics metrics = example();
  EXPECT_EQ(progress_line(metrics, 1000, Seconds(724)),
            "step  120/1000  loss 3.2145  |g| 0.87  lr 2.9e-04  41.2k tok/s  MFU 48.1%  "
            "9.8 GiB of 10.1 predicted  eta 12m04s");
  metrics.predicted = Bytes(1'099'511'627'776);
  EXPECT_TRUE(holds(progress_line(metrics, 1000, {}), "9.8 GiB of 1.0 TiB predicted"));
  metrics.predicted.reset();
  EXPECT_TRUE(progress_line(metrics, 1000, {}).ends_with("MFU 48.1%  9.8 GiB"));
  metrics.allocated.reset();
  metrics.mfu.reset();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(progress_line(metrics, 120, {}),
            "step 120/120  loss nan  |g| 0.87  lr 2.9e-04  41.2k tok/s");
}

TEST(Progress, Durations) {
  struct Case {
    double seconds;
    const char* text;
  };
  const Case cases[] = {{0, "0s"},
                        {59.4, "59s"},
                        {59.5, "1m00s"},
                        {724, "12m04s"},
                        {3599, "59m59s"},
                        {3600, "1h00m"},
                        {11'100, "3h05m"},
                        {86'399, "23h59m"},
                        {86'400, "1d00h"},
                        {183'600, "2d03h"},
                        {-1, "0s"},
                        {1e300, "forever"},
                        {std::numeric_limits<double>::quiet_NaN(), "forever"}};
  for (const Case& c : cases) EXPECT_EQ(format_duration(Seconds(c.seconds)), c.text) << c.seconds;
}

TEST(Progress, Rates) {
  struct Case {
    double rate;
    const char* text;
  };
  const Case cases[] = {{0, "0"},          {850.4, "850"},      {999.6, "1.0k"},
                        {41'234, "41.2k"}, {999'940, "999.9k"}, {999'960, "1.0M"},
                        {1.25e6, "1.2M"},  {999.96e6, "1.0G"},  {5e9, "5.0G"}};
  for (const Case& c : cases) EXPECT_EQ(format_rate(c.rate), c.text) << c.rate;
}

TEST(Progress, StepTimeForgetsTheFirstStepAndSmoothsTheRest) {
  StepTime time;
  EXPECT_EQ(time.mean(), std::nullopt);
  time.add(Seconds(30));
  EXPECT_DOUBLE_EQ(time.mean()->value(), 30);
  time.add(Seconds(1));
  EXPECT_DOUBLE_EQ(time.mean()->value(), 1);
  time.add(Seconds(2));
  EXPECT_DOUBLE_EQ(time.mean()->value(), (0.9 * 1 + 2) / 1.9);
  for (int i = 0; i < 200; ++i) time.add(Seconds(4));
  EXPECT_NEAR(time.mean()->value(), 4, 1e-6);
}

// What a run of `steps` steps of a second each writes.
std::string written(ProgressOptions options, std::int64_t steps, double seconds = 1) {
  const ScratchFolder folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "wb");
  {
    Progress progress(out, options);
    StepMetrics metrics = example();
    metrics.seconds = Seconds(seconds);
    for (metrics.step = 0; metrics.step < steps; ++metrics.step) progress.step(metrics);
  }
  std::fclose(out);
  return read_bytes(folder / "out");
}

// The numbers behind "step", and what separates the lines.
std::vector<int> steps_of(const std::string& text) {
  std::vector<int> steps;
  for (std::size_t at = text.find("step "); at != std::string::npos;
       at = text.find("step ", at + 1))
    steps.push_back(std::stoi(text.substr(at + 5)));
  return steps;
}

TEST(Progress, ALogHasTheFirstTheLastAndALineNowAndThen) {
  EXPECT_EQ(steps_of(written({.total_steps = 25, .every = Seconds(10)}, 25)),
            (std::vector<int>{1, 11, 21, 25}));
  EXPECT_EQ(steps_of(written({.total_steps = 9, .every = Seconds(1000), .every_steps = 4}, 9)),
            (std::vector<int>{1, 4, 8, 9}));
  const std::string log = written({.total_steps = 25, .every = Seconds(10)}, 25);
  EXPECT_EQ(std::ranges::count(log, '\n'), 4);
  EXPECT_EQ(log.find('\r'), std::string::npos);
  EXPECT_TRUE(holds(log, "eta 24s"));
  EXPECT_TRUE(log.ends_with("eta 0s\n"));
}

TEST(Progress, ATerminalHasOneLine) {
  const std::string text = written({.total_steps = 25, .terminal = true}, 25);
  EXPECT_EQ(steps_of(text).size(), 25U);
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
  EXPECT_TRUE(text.ends_with("\n"));
  EXPECT_TRUE(text.starts_with("\r\x1b[Kstep  1/25"));
}

TEST(Progress, ATerminalIsNotRewrittenFasterThanEyesSee) {
  // 0.0625 s, a sum without rounding: every second step is 0.125 s after the line before.
  EXPECT_EQ(steps_of(written({.total_steps = 8, .terminal = true}, 8, 0.0625)),
            (std::vector<int>{1, 3, 5, 7, 8}));
}

TEST(Progress, AnInterruptedRunEndsItsLine) {
  EXPECT_TRUE(written({.total_steps = 25, .terminal = true}, 3).ends_with("\n"));
  EXPECT_EQ(written({.total_steps = 25, .terminal = true}, 0), "");
}

}  // namespace
}  // namespace braid::train
