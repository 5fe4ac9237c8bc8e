// Runs that are saved, interrupted and go on, and the verb that looks into what they saved.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>  // SIGKILL for a child process: POSIX, not <csignal>

#include <chrono>
#include <sstream>
#include <thread>

#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class SavedRun : public testing::Test {
 protected:
  void SetUp() override {
    static const bool runs =
        run_braid({"train", "--help"}, folder_.path()).out.find("--resume") != std::string::npos;
    if (!runs) GTEST_SKIP() << "this build has no runtime";
    make_plan(folder_.path(), {"--seq", "16", "--precision", "fp32"});
  }
  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train", "plan.json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Outcome train(const std::vector<std::string>& more) const {
    return run_braid(command(more), folder_.path());
  }
  // Step, loss and norm of every line, in all digits.
  std::vector<std::string> trained(const std::string& metrics) const {
    std::istringstream lines(read_bytes(folder_ / (metrics + "/metrics.jsonl")));
    std::vector<std::string> all;
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      all.push_back(
          Json{json["step"], json["loss"], json["gradient_norm"], json["learning_rate"]}.dump());
    }
    return all;
  }

  InputFolder folder_;
};

TEST_F(SavedRun, GoesOnBitByBitAfterBeingKilled) {
  ASSERT_EQ(train({"--steps", "24", "--metrics", "undisturbed"}).exit, 0);
  const std::vector<std::string> again = {"--steps",      "24",        "--save", "saved",
                                          "--save-every", "1",         "--keep", "2",
                                          "--resume",     "--metrics", "killed"};
  for (const std::size_t lines : {2, 9, 15}) {
    StartedBraid run(command(again), folder_.path());
    const auto limit = std::chrono::steady_clock::now() + 60s;
    const auto written = [&] {
      return std::filesystem::exists(folder_ / "killed/metrics.jsonl") ? trained("killed").size()
                                                                       : 0;
    };
    try {
      while (written() < lines && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(1ms);
    } catch (const Json::exception&) {  // a line that is just being written
    }
    run.send(SIGKILL);
    run.wait();
  }
  const Outcome last = train(again);
  ASSERT_EQ(last.exit, 0) << last.error;
  EXPECT_EQ(trained("killed"), trained("undisturbed"));
}

TEST_F(SavedRun, SavesWhenItIsInterrupted) {
  StartedBraid run(command({"--steps", "100000", "--save", "saved", "--metrics", "m"}),
                   folder_.path());
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (read_bytes(folder_ / "m/metrics.jsonl").find('\n') == std::string::npos &&
         std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(5ms);
  run.send(SIGUSR1);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.exit, 128 + SIGUSR1);
  const std::size_t steps = trained("m").size();
  const Outcome shown =
      run_braid({"checkpoint", "show", "saved", "--format", "json"}, folder_.path());
  ASSERT_EQ(shown.exit, 0) << shown.error;
  EXPECT_EQ(Json::parse(shown.out).at("step").get<std::size_t>(), steps);
}

TEST_F(SavedRun, AnotherBatchGoesOnAtTheRightSample) {
  ASSERT_EQ(train({"--steps", "2", "--save", "saved"}).exit, 0);
  const Json before = Json::parse(
      run_braid({"checkpoint", "show", "saved", "--format", "json"}, folder_.path()).out);
  make_plan(folder_.path(), {"--seq", "16", "--precision", "fp32", "--global-batch", "4"});
  const Outcome outcome = train({"--steps", "3", "--save", "saved", "--resume"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("changed since: global_batch"));
  const Json after = Json::parse(
      run_braid({"checkpoint", "show", "saved", "--format", "json"}, folder_.path()).out);
  EXPECT_EQ(after.at("samples").get<int>(), before.at("samples").get<int>() + 4);
}

TEST_F(SavedRun, RefusesTheFolderOfAnotherRun) {
  ASSERT_EQ(train({"--steps", "1", "--save", "saved"}).exit, 0);
  const Outcome without = train({"--steps", "2", "--save", "saved"});
  EXPECT_EQ(without.exit, 2);
  EXPECT_THAT(without.error, HasSubstr("add --resume"));
  const Outcome seed = train({"--steps", "2", "--save", "saved", "--resume", "--seed", "9"});
  EXPECT_EQ(seed.exit, 2);
  EXPECT_THAT(seed.error, HasSubstr("seed: 1 when it was saved, 9 now"));
  EXPECT_EQ(train({"--steps", "2", "--resume"}).exit, 2);
  const Outcome done = train({"--steps", "1", "--save", "saved", "--resume"});
  EXPECT_EQ(done.exit, 0);
  EXPECT_THAT(done.error, HasSubstr("the run has taken its 1 steps"));
}

TEST_F(SavedRun, ASaveThatFailsLeavesTheLastOneAndTrainingGoesOn) {
  ASSERT_EQ(train({"--steps", "1", "--save", "saved"}).exit, 0);
  // Where the next checkpoint's folder should be, there is a file.
  write_bytes(folder_ / "saved/step-00000002", "in the way");
  const std::vector<std::string> more = {
      "--steps", "3", "--save", "saved", "--save-every", "1", "--resume", "--metrics", "m"};
  const Outcome outcome = train(more);
  EXPECT_EQ(outcome.exit, 0) << "the last step is saved";
  EXPECT_THAT(outcome.error, HasSubstr("warning: step 2 could not be saved"));
  EXPECT_THAT(read_bytes(folder_ / "m/metrics.jsonl"), HasSubstr("\"error\""));
  EXPECT_EQ(run_braid({"checkpoint", "verify", "saved/step-00000001"}, folder_.path()).exit, 0);
  std::filesystem::remove_all(folder_ / "saved/step-00000003");
  std::filesystem::remove_all(folder_ / "m");
  std::vector<std::string> strict = more;
  strict.insert(strict.end(), {"--on-save-error", "stop"});
  EXPECT_EQ(train(strict).exit, 2);
}

TEST_F(SavedRun, IsShownComparedAndExported) {
  ASSERT_EQ(train({"--steps", "2", "--save", "saved", "--save-every", "1"}).exit, 0);
  const Outcome shown = run_braid({"checkpoint", "show", "saved", "--tensors"}, folder_.path());
  EXPECT_EQ(shown.exit, 0);
  for (const char* words : {"saved/step-00000002", "parameters in F32", "optimizer.exp_avg."})
    EXPECT_THAT(shown.out, HasSubstr(words));
  EXPECT_EQ(run_braid({"checkpoint", "diff", "saved", "saved/step-00000002"}, folder_.path()).exit,
            0);
  const Outcome differ =
      run_braid({"checkpoint", "diff", "saved/step-00000001", "saved"}, folder_.path());
  EXPECT_EQ(differ.exit, 3);
  EXPECT_THAT(differ.out, HasSubstr("tensors differ"));
  const Outcome exported = run_braid({"checkpoint", "export", "saved", "--to", "hf", "--config",
                                      "model.json", "--out", "published", "--max-shard", "100KB"},
                                     folder_.path());
  ASSERT_EQ(exported.exit, 0) << exported.error;
  const Json index = read_json(folder_ / "published/model.safetensors.index.json");
  EXPECT_GT(index.at("weight_map").size(), 4U);
  // What was exported trains on as a published model, and so does the checkpoint itself.
  const Outcome published = train({"--steps", "1", "--weights", "published", "--metrics", "a"});
  ASSERT_EQ(published.exit, 0) << published.error;
  ASSERT_EQ(train({"--steps", "1", "--weights", "saved/step-00000002", "--metrics", "b"}).exit, 0);
  EXPECT_EQ(trained("a"), trained("b"));
}

}  // namespace
}  // namespace braid
