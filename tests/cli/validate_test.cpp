// braid validate: the keys that programs rely on, and what is written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr const char* kRuns = R"({"rows": [
  {"set": "vtrain_single", "id": 1, "gpu": "A100", "hidden": 1024, "layers": 12, "heads": 16,
   "seq": 1024, "gpus": 8, "tp": 1, "pp": 1, "dp": 8, "gbs": 64, "mbs": 4, "recompute": "full",
   "measured": {"iter_time_s": 0.2}},
  {"set": "vtrain_single", "id": 2, "gpu": "A100", "hidden": 1024, "layers": 12, "heads": 16,
   "seq": 1024, "gpus": 8, "tp": 8, "pp": 1, "dp": 1, "gbs": 64, "mbs": 4, "recompute": "full",
   "measured": {"iter_time_s": 0.8}},
  {"set": "mist_l4", "id": 3, "gpu": "L4-24GB", "model": "gpt-1.3b", "gpus": 2, "gbs": 32,
   "flash_attn": true,
   "measured": {"iter_time_s": 8, "stage_alloc_mb": [18000], "stage_reserved_mb": [20000]}}]})";

struct RunsFolder : ScratchFolder {
  RunsFolder() { write_text(*this / "runs.json", kRuns); }
};

TEST(ValidateCommand, AnswersProgramsWithFixedKeys) {
  const RunsFolder folder;
  const Json answer =
      json_of(run_braid({"validate", "runs.json", "--format", "json"}, folder.path()));
  ASSERT_EQ(answer.at("sets").size(), 2U);
  const Json& first = answer.at("sets").at(0);
  EXPECT_EQ(first.at("set"), "vtrain_single");
  EXPECT_EQ(first.at("rows"), 2);
  EXPECT_GT(first.at("mape"), 0);
  EXPECT_LT(first.at("mape"), 60);
  EXPECT_EQ(first.at("regret"), 0);
  EXPECT_TRUE(first.at("spearman").is_null());  // two runs make no ranking
  EXPECT_EQ(answer.at("reserved").at("ranks"), 1);
}

TEST(ValidateCommand, ShowsSetsTheWorstRunsAndAPlot) {
  const RunsFolder folder;
  const Outcome outcome =
      run_braid({"validate", "runs.json", "--worst", "1", "--plot", "p.svg"}, folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("vtrain_single"));
  EXPECT_THAT(outcome.out, HasSubstr("No run is faster than its arithmetic"));
  EXPECT_THAT(outcome.out, HasSubstr("predicted"));
  EXPECT_THAT(read_text(folder / "p.svg"), HasSubstr("</svg>"));
}

TEST(ValidateCommand, CrossValidates) {
  const RunsFolder folder;
  const Outcome outcome = run_braid(
      {"validate", "runs.json", "--set", "vtrain_single", "--cross-validate", "2"}, folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("without its fold of 2"));
}

TEST(ValidateCommand, RefusesMistakes) {
  const RunsFolder folder;
  const auto refused = [&](const std::vector<std::string>& command, const char* part) {
    const Outcome outcome = run_braid(command, folder.path());
    EXPECT_EQ(outcome.exit, 2);
    EXPECT_THAT(outcome.error, HasSubstr(part));
  };
  refused({"validate", "nothing.json"}, "nothing.json");
  refused({"validate", "runs.json", "--set", "mist"}, "choose from vtrain_single, mist_l4");
  refused({"validate", "runs.json", "--fit", "--cross-validate", "2"}, "give one of them");
  refused({"validate", "runs.json", "--worst", "some"}, "--worst");
  write_text(folder / "broken.json", "{\"rows\": [{\"set\": 1}]}");
  refused({"validate", "broken.json"}, "rows[0].set");
}

}  // namespace
}  // namespace braid
