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

TEST(ValidateCommand, PricesTheRunsThatShip) {
  const ScratchFolder folder;
  const std::string runs =
      (std::filesystem::path(BRAID_SOURCE_DIR) / "configs/examples/published-runs.json").string();
  const Outcome outcome = run_braid({"validate", runs, "--worst", "2"}, folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("5 runs in"));
  const Json answer = json_of(run_braid({"validate", runs, "--format", "json"}, folder.path()));
  EXPECT_EQ(answer.at("sets").at(0).at("rows"), 5);
  EXPECT_LT(answer.at("sets").at(0).at("mape"), 15);
  EXPECT_TRUE(answer.at("refused").empty());
  EXPECT_TRUE(answer.at("unpriced").empty());
}

// Each of these rows was priced, or gone without a word.
TEST(ValidateCommand, RefusesRunsThatCannotBe) {
  const RunsFolder folder;
  struct Case {
    const char* edit;
    const char* reason;
  };
  constexpr Case kCases[] = {
      {R"({"tp": 3, "dp": 1, "gpus": 3})", "tp 3 does not divide its 16 heads"},
      {R"({"tp": 2})", "tp 2 · pp 1 · cp 1 · dp 8 is not its 8 devices"},
      {R"({"dp": null, "tp": 16})", "tp 16 · pp 1 · cp 1 does not divide its 8 devices"},
      {R"({"gpus": 0})", "its gpus is 0"},
      {R"({"pp": 16, "dp": 1, "gpus": 16})", "16 stages of 12 blocks"},
      {R"({"pp": 2, "dp": 4, "partition": [0, 14, 14]})", "its partition does not ascend"},
      {R"({"pp": 8, "dp": 1, "gbs": 16777216, "mbs": 1, "interleave": 8})", "too many to play"},
  };
  Json runs = parse_json(kRuns, "runs");
  Json rows = Json::array();
  for (const Case& c : kCases) {
    Json row = runs["rows"][0];
    row["id"] = c.reason;
    row.update(parse_json(c.edit, "edit"));
    rows.push_back(row);
  }
  Json idle = runs["rows"][0];
  idle["measured"]["iter_time_s"] = 0;
  rows.push_back(idle);
  write_text(folder / "odd.json", Json{{"rows", rows}}.dump());
  const Json answer =
      json_of(run_braid({"validate", "odd.json", "--format", "json"}, folder.path()));
  ASSERT_EQ(answer.at("refused").size(), std::size(kCases)) << answer.dump(2);
  for (std::size_t i = 0; i < std::size(kCases); ++i) {
    EXPECT_THAT(answer.at("refused").at(i).at("reason"), HasSubstr(kCases[i].reason));
    EXPECT_EQ(answer.at("refused").at(i).at("id"), kCases[i].reason);
  }
  ASSERT_EQ(answer.at("unpriced").size(), 1U);
  EXPECT_THAT(answer.at("unpriced").at(0).at("reason"), HasSubstr("nothing above zero"));
  EXPECT_EQ(answer.at("unpriced").at(0).at("id"), 1);
  EXPECT_EQ(answer.at("sets").at(0).at("refused"), std::size(kCases));
  EXPECT_THAT(run_braid({"validate", "odd.json"}, folder.path()).out,
              HasSubstr("Refused, for they cannot be: 7 runs."));
}

TEST(ValidateCommand, PrintsWhatItFittedForPeople) {
  const RunsFolder folder;
  const Outcome outcome = run_braid({"validate", "runs.json", "--fit"}, folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("Fitted figures"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("{\"")));
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
  Json endless = parse_json(kRuns, "runs");
  endless["rows"][0]["layers"] = 1000000000;
  write_text(folder / "endless.json", endless.dump());
  refused({"validate", "endless.json"}, "write a whole number from 0 to 10000");
}

}  // namespace
}  // namespace braid
