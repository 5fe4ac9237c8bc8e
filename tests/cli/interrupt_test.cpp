// Ctrl-C and SIGTERM, as a user or a batch system sends them to the program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>  // SIGINT for a child process: POSIX, not <csignal>

#include <chrono>
#include <thread>

#include "tests/cli/program.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A search of minutes, one of whose configurations takes tens of seconds.
std::vector<std::string> long_search(std::vector<std::string> more = {}) {
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  std::vector<std::string> words = {"plan",
                                    "--model",
                                    (configs / "models/megatron-530b.json").string(),
                                    "--cluster",
                                    (configs / "clusters/h100-128x8.json").string(),
                                    "--global-batch",
                                    "256",
                                    "--threads",
                                    "1",
                                    "--format",
                                    "json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Interrupt, TheFirstSignalEndsASearchWithThePlanSoFar) {
  const InputFolder folder;
  for (const int signal : {SIGINT, SIGTERM}) {
    StartedBraid search(long_search(), folder.path());
    std::this_thread::sleep_for(6s);
    search.send(signal);
    const auto sent = Clock::now();
    const Outcome outcome = search.wait();
    EXPECT_LT(Clock::now() - sent, 2s) << signal;
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    EXPECT_THAT(outcome.out, testing::HasSubstr(R"("interrupted": true)")) << signal;
    EXPECT_THAT(outcome.out, testing::HasSubstr(R"("ended_by": "signal")")) << signal;
    EXPECT_THAT(outcome.error, testing::ContainsRegex("braid: [0-9]+ s: .*best .* an iteration"));
  }
}

TEST(Interrupt, ALimitEndsASearchWithThePlanSoFar) {
  const InputFolder folder;
  const Outcome outcome = run_braid(long_search({"--limit", "4"}), folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, testing::HasSubstr(R"("ended_by": "limit")"));
}

TEST(Interrupt, WithoutAPlanByThenThereIsNone) {
  const InputFolder folder;
  const Outcome outcome = run_braid(long_search({"--limit", "0.000001"}), folder.path());
  EXPECT_EQ(outcome.exit, 3) << outcome.error;
  EXPECT_THAT(outcome.out, testing::HasSubstr(R"("status": "interrupted")"));
}

TEST(FewerDevices, AreNamedWhereTheyAreAsFast) {
  const InputFolder folder;
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan",
                                      "--global-batch",
                                      "4",
                                      "--format",
                                      "json",
                                      "--model",
                                      (configs / "models/gpt2.json").string(),
                                      "--cluster",
                                      (configs / "clusters/h100-16x8.json").string()};
    words.insert(words.end(), more.begin(), more.end());
    return json_of(run_braid(words, folder.path()));
  };
  const Json all = plan({});
  const double whole = all.at("predicted").at("iteration_seconds");
  ASSERT_TRUE(all.at("fewer_devices").is_object());
  const int devices = all.at("fewer_devices").at("devices");
  const Json part = plan({"--devices", std::to_string(devices)});
  EXPECT_LT(devices, 128);
  EXPECT_LE(part.at("predicted").at("iteration_seconds").get<double>(), whole * 1.01);
}

TEST(Interrupt, LimitAndGapAreReadWithCare) {
  const InputFolder folder;
  for (const char* flag : {"--limit", "--gap"})
    for (const char* value : {"0", "-1", "nan", "1e308", "2s", "5%"}) {
      const Outcome outcome = run_braid(plan_command({flag, value}), folder.path());
      EXPECT_EQ(outcome.exit, 2) << flag << ' ' << value;
      EXPECT_THAT(outcome.error, testing::HasSubstr(flag));
    }
}

}  // namespace
}  // namespace braid
