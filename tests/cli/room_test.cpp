// Plans that the machine cannot hold are refused before the first byte.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

// One decoder between tables of 2^40 weights: some 35 TiB on each of four ranks.
class HugeModel : public testing::Test {
 protected:
  void SetUp() override {
    const std::string help = run_braid({"train", "--help"}, folder_.path()).out;
    if (help.find("--dry-run") == std::string::npos) GTEST_SKIP() << "this build has no runtime";
    const Json model = {{"model_type", "llama"},         {"hidden_act", "silu"},
                        {"hidden_size", 1 << 16},        {"intermediate_size", 4096},
                        {"max_position_embeddings", 16}, {"num_attention_heads", 512},
                        {"num_hidden_layers", 1},        {"num_key_value_heads", 512},
                        {"tie_word_embeddings", false},  {"vocab_size", 1 << 24}};
    write_text(folder_ / "huge.json", model.dump());
    Json cluster = read_json(folder_ / "cluster.json");
    cluster["devices"]["small"]["memory"] = "1000TiB";
    write_text(folder_ / "vast.json", cluster.dump());
  }
  std::vector<std::string> task(const std::string& verb, std::vector<std::string> more) const {
    std::vector<std::string> command = {verb,        "--model",        "huge.json", "--cluster",
                                        "vast.json", "--global-batch", "4",         "--precision",
                                        "fp32",      "--algorithm",    "dp"};
    if (verb == "compare") command[command.size() - 2] = "--algorithms";
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  InputFolder folder_;
};

TEST_F(HugeModel, TrainRefusesWithWhatIsNeededAndWhatIsThere) {
  const Outcome planned = run_braid(task("plan", {"--out", "plan.json"}), folder_.path());
  ASSERT_EQ(planned.exit, 0) << planned.error << planned.out;
  const Outcome outcome = run_braid({"train", "plan.json", "--metrics", "run"}, folder_.path());
  EXPECT_EQ(outcome.exit, 3);
  EXPECT_THAT(outcome.error, HasSubstr("braid: error: 4 ranks need at least "));
  EXPECT_THAT(outcome.error, HasSubstr(" of the memory of "));
  EXPECT_THAT(outcome.error, HasSubstr(" are free\n  where: --plan plan.json\n  fix: "));
  EXPECT_THAT(outcome.error, HasSubstr("--dry-run"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/metrics.jsonl"));
  EXPECT_EQ(run_braid({"train", "plan.json", "--dry-run"}, folder_.path()).exit, 0);
}

TEST_F(HugeModel, CompareRefusesItsRowsAndEndsWithNothingFits) {
  const Outcome outcome =
      run_braid(task("compare", {"--steps", "1", "--out", "results.json"}), folder_.path());
  EXPECT_EQ(outcome.exit, 3) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("4 ranks need at least "));
  EXPECT_THAT(read_text(folder_ / "results.json"), HasSubstr("4 ranks need at least "));
}

TEST_F(HugeModel, AutoSaysThatNothingFitsBeforeItMeasures) {
  const Outcome outcome = run_braid({"auto", "--model", "model.json", "--seq", "16",
                                     "--global-batch", "2", "--cache", "kept", "--memory", "1KiB"},
                                    folder_.path());
  EXPECT_EQ(outcome.exit, 3) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("No plan fits"));
  EXPECT_THAT(outcome.error, Not(HasSubstr("measuring")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "kept"));
}

// bench asks for no plan, and so for no room beforehand. The limit keeps a machine that promises
// more than it has from trying.
TEST_F(HugeModel, MemoryThatRunsOutIsNoBug) {
  const std::string command = fmt::format(
      "cd '{}' && ulimit -v 60000000 && '{}' bench step --model huge.json --global-batch 1 --steps "
      "1 "
      "2> error",
      folder_.path().string(), BRAID_BINARY);
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_THAT(read_text(folder_ / "error"),
              HasSubstr("braid: error: out of memory: 2.0 TiB could not be allocated\n  where: "));
}

}  // namespace
}  // namespace braid
