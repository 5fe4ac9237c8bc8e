// SIGINT and SIGTERM while ranks train or measure: the work under way is finished, what was done is
// reported, and the status is the signal's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>  // SIGINT for a child process: POSIX, not <csignal>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/explain/run_report.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr int kSignalled = 128;

class InterruptedRun : public testing::Test {
 protected:
  void SetUp() override {
    static const bool runs =
        run_braid({"train", "--help"}, folder_.path()).out.find("--dry-run") != std::string::npos;
    if (!runs) GTEST_SKIP() << "this build has no runtime";
  }

  void plan() const { make_plan(folder_.path(), {"--seq", "16", "--precision", "fp32"}); }
  // Sends the signal as soon as the condition holds.
  Outcome interrupt(const std::vector<std::string>& command, int signal,
                    const std::function<bool()>& under_way) const {
    StartedBraid run(command, folder_.path());
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!under_way() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(10ms);
    run.send(signal);
    return run.wait();
  }
  // How many whole lines a file holds; an absent one none.
  std::ptrdiff_t lines_of(const char* file) const {
    const std::string text = read_bytes(folder_ / file);
    return std::ranges::count(text, '\n');
  }

  InputFolder folder_;
};

TEST_F(InterruptedRun, TrainingEndsAfterAStepWithItsReportAndTrace) {
  plan();
  const Outcome outcome =
      interrupt({"train", "--plan", "plan.json", "--steps", "1000000", "--metrics", "run", "--out",
                 "report.json", "--trace", "trace.json"},
                SIGTERM, [&] { return lines_of("run/metrics.jsonl") >= 4; });
  EXPECT_EQ(outcome.exit, kSignalled + SIGTERM) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("a second Ctrl-C ends at once"));
  const std::ptrdiff_t steps = lines_of("run/metrics.jsonl");
  EXPECT_THAT(outcome.out,
              HasSubstr("Stopped after step " + std::to_string(steps) + " of 1000000 by SIGTERM."));
  const RunReport report = read_report(folder_ / "report.json");
  EXPECT_EQ(report.stopped_by, "SIGTERM");
  EXPECT_EQ(std::ssize(report.steps), steps);
  EXPECT_TRUE(report.stages.front().measured);  // of the second step
  EXPECT_EQ(read_text(folder_ / "report.json"), read_text(folder_ / "run/report.json"));
  EXPECT_GT(read_json(folder_ / "trace.json").at("traceEvents").size(), 10U);
}

TEST_F(InterruptedRun, ASecondInterruptEndsAtOnce) {
  plan();
  StartedBraid run({"train", "--plan", "plan.json", "--steps", "1000000", "--metrics", "run"},
                   folder_.path());
  while (lines_of("run/metrics.jsonl") < 2) std::this_thread::sleep_for(10ms);
  run.send(SIGSTOP);  // so that no step ends between the two
  run.send(SIGINT);
  run.send(SIGCONT);
  run.send(SIGINT);
  EXPECT_EQ(run.wait().exit, kSignalled + SIGINT);
}

TEST_F(InterruptedRun, MeasuringKeepsItsJournal) {
  const Outcome outcome =
      interrupt({"profile", "model", "--model", "model.json", "--seq", "16", "--global-batch", "8",
                 "--ranks", "2", "--out", "measured.json"},
                SIGTERM, [&] { return lines_of("measured.json.journal") >= 3; });
  EXPECT_EQ(outcome.exit, kSignalled + SIGTERM) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("stopped by SIGTERM: measured.json.journal has"));
  EXPECT_GE(lines_of("measured.json.journal"), 3);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "measured.json"));
}

TEST_F(InterruptedRun, AutoStopsWhileItMeasures) {
  const std::filesystem::path cache = folder_ / "cache";
  const auto measured = [&] {
    std::error_code code;
    for (const auto& entry : std::filesystem::directory_iterator(cache, code))
      if (entry.path().extension() == ".journal" && std::filesystem::file_size(entry) > 1000)
        return true;
    return false;
  };
  const Outcome outcome =
      interrupt({"auto", "--model", "model.json", "--seq", "16", "--global-batch", "8", "--ranks",
                 "2", "--cache", "cache", "--metrics", "run"},
                SIGINT, measured);
  EXPECT_EQ(outcome.exit, kSignalled + SIGINT) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("the same command goes on from there"));
  EXPECT_TRUE(measured());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/metrics.jsonl"));
}

TEST_F(InterruptedRun, AComparisonKeepsThePlansThatRan) {
  const std::vector<std::string> compare = {
      "compare", "--model",     "model.json",  "--cluster", "cluster.json", "--global-batch",
      "8",       "--precision", "fp32",        "--seq",     "16",           "--algorithms",
      "dp,tp",   "--out",       "results.json"};
  std::vector<std::string> endless = compare;
  endless.insert(endless.end(), {"--steps", "500000"});
  const Outcome outcome = interrupt(endless, SIGTERM, [&] {
    return read_bytes(folder_ / "results.json").find("ended during") != std::string::npos;
  });
  EXPECT_EQ(outcome.exit, kSignalled + SIGTERM) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("stopped by SIGTERM after 0 of 2 runs"));
  // The plan under way is neither failed nor measured: a next comparison runs both.
  EXPECT_EQ(read_bytes(folder_ / "results.json").find("ended during"), std::string::npos);
  std::vector<std::string> again = compare;
  again.insert(again.end(), {"--steps", "1"});
  const Outcome complete = run_braid(again, folder_.path());
  EXPECT_EQ(complete.exit, 0) << complete.error;
  EXPECT_THAT(complete.error, HasSubstr("2 of 2"));
}

TEST_F(InterruptedRun, BenchSaysHowFarItCame) {
  StartedBraid bench({"bench", "step", "--model", "model.json", "--seq", "16", "--batch", "2",
                      "--steps", "1000000", "--warmup", "1", "--precision", "fp32"},
                     folder_.path());
  std::this_thread::sleep_for(2s);
  bench.send(SIGTERM);
  const Outcome outcome = bench.wait();
  EXPECT_EQ(outcome.exit, kSignalled + SIGTERM) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("stopped by SIGTERM: "));
  EXPECT_THAT(outcome.error, HasSubstr("of 1000000 steps were done"));
}

}  // namespace
}  // namespace braid
