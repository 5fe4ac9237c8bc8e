// braid auto and braid calibrate: one rank, a small model, and what is kept of the measuring.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/plan/plan.h"
#include "planner/profile/profile.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

class AutoCommand : public testing::Test {
 protected:
  void SetUp() override {
    const std::string help = run_braid({"auto", "--help"}, folder_.path()).out;
    if (help.find("--cache") == std::string::npos) GTEST_SKIP() << "this build has no runtime";
  }
  Outcome run(std::vector<std::string> more) const {
    std::vector<std::string> command = {"auto",           "--model", "model.json", "--seq", "16",
                                        "--global-batch", "2",       "--cache",    "kept"};
    command.insert(command.end(), more.begin(), more.end());
    return run_braid(command, folder_.path());
  }
  std::filesystem::path only_profile() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kept"))
      files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1U);
    return files.at(0);
  }

  InputFolder folder_;
};

TEST_F(AutoCommand, MeasuresOnceThenPlansTrainsAndReports) {
  const Outcome first = run({"--steps", "3", "--metrics", "run1"});
  ASSERT_EQ(first.exit, 0) << first.error;
  EXPECT_THAT(first.error, HasSubstr("measuring this machine"));
  EXPECT_THAT(first.error, HasSubstr("; kept in kept/profile-"));
  EXPECT_THAT(first.error, HasSubstr("that a device may use"));
  EXPECT_THAT(first.out, HasSubstr("Time of a step"));
  const Plan plan = read_plan(folder_ / "run1/plan.json");
  EXPECT_EQ(plan.cost, CostKind::measured);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run1/report.json"));

  const Outcome second = run({"--steps", "1"});
  ASSERT_EQ(second.exit, 0) << second.error;
  EXPECT_THAT(second.error, HasSubstr("measured before: kept/profile-"));

  // What is kept is a profile like any other, and a run of its plan corrects it.
  const std::string profile = only_profile().string();
  const Outcome calibrated = run_braid({"calibrate", "--profile", profile, "--report",
                                        "run1/report.json", "--out", "calibrated.json"},
                                       folder_.path());
  ASSERT_EQ(calibrated.exit, 0) << calibrated.error;
  EXPECT_THAT(calibrated.out, HasSubstr("Mean error of a step"));
  EXPECT_TRUE(read_profile(folder_ / "calibrated.json").correction.has_value());
  const Json answer =
      json_of(run_braid({"calibrate", "--profile", profile, "--report", "run1/report.json", "--out",
                         "calibrated.json", "--format", "json"},
                        folder_.path()));
  EXPECT_EQ(answer.at("runs").size(), 1U);
  EXPECT_GT(answer.at("after").at("compute"), 0);

  Profile over_another = read_profile(profile);
  over_another.cluster->groups[0].inside.latency = Seconds(0.5);
  write_text(folder_ / "other.json", to_json(over_another).dump());
  const Outcome other = run_braid({"calibrate", "--profile", "other.json", "--report",
                                   "run1/report.json", "--out", "calibrated.json"},
                                  folder_.path());
  EXPECT_EQ(other.exit, 2);
  EXPECT_THAT(other.error, HasSubstr("cluster/nodes/0/link/latency: 0.5 in the profile, "));
  EXPECT_THAT(other.error, HasSubstr("the same machine over another backend than in_process"));

  // Damaged, it is measured anew.
  write_text(profile, "{");
  const Outcome third = run({"--steps", "1"});
  ASSERT_EQ(third.exit, 0) << third.error;
  EXPECT_THAT(third.error, HasSubstr("measuring anew"));

  // So it is where it came from elsewhere.
  Profile foreign = read_profile(profile);
  for (Fact& fact : foreign.taken_on)
    if (fact.name == "ranks") fact.value = "8";
  write_text(profile, to_json(foreign).dump());
  const Outcome fourth = run({"--steps", "1"});
  ASSERT_EQ(fourth.exit, 0) << fourth.error;
  EXPECT_THAT(fourth.error, HasSubstr("ranks: '8' then, '1' now; measuring anew"));
  EXPECT_NE(read_profile(profile).taken_on, foreign.taken_on);
}

TEST_F(AutoCommand, NoPlanThatFitsIsAnAnswer) {
  const Outcome outcome = run({"--memory", "1MiB"});
  EXPECT_EQ(outcome.exit, 3) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("No plan fits")) << outcome.error;
}

TEST_F(AutoCommand, ALimitAboveTheMachineIsRefusedBeforeItIsMeasured) {
  const Outcome outcome = run({"--memory", "4096TiB"});
  EXPECT_EQ(outcome.exit, 2) << outcome.out;
  EXPECT_THAT(outcome.error, HasSubstr("a limit of 4096.0 TiB is above the"));
  EXPECT_THAT(outcome.error, Not(HasSubstr("measuring")));
}

TEST(CalibrateCommand, RefusesRunsOfOthersAndNone) {
  const InputFolder folder;
  const Outcome none =
      run_braid({"calibrate", "--profile", "profile.json", "--out", "out.json"}, folder.path());
  EXPECT_EQ(none.exit, 2);
  EXPECT_THAT(none.error, HasSubstr("there is no run to calibrate with"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.json"));
}

}  // namespace
}  // namespace braid
