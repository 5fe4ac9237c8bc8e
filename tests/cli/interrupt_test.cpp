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

// A search of many seconds.
std::vector<std::string> long_search() {
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  return {"plan",
          "--model",
          (configs / "models/llama3-70b.json").string(),
          "--cluster",
          (configs / "clusters/h100-16x8.json").string(),
          "--global-batch",
          "256",
          "--threads",
          "1",
          "--format",
          "json"};
}

TEST(Interrupt, TheFirstSignalEndsASearchWithThePlanSoFar) {
  const InputFolder folder;
  for (const int signal : {SIGINT, SIGTERM}) {
    StartedBraid search(long_search(), folder.path());
    std::this_thread::sleep_for(4s);
    search.send(signal);
    const Outcome outcome = search.wait();
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    EXPECT_THAT(outcome.out, testing::HasSubstr(R"("interrupted": true)")) << signal;
  }
}

}  // namespace
}  // namespace braid
