// braid profile hardware: a short run, and what it says of mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/profile/profile.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ProfileCommand : public testing::Test {
 protected:
  void SetUp() override {
    // A build without the runtime has the verb to say that it cannot measure.
    if (run_braid({"profile", "hardware", "--help"}, folder_.path()).out.find("--max-message") ==
        std::string::npos)
      GTEST_SKIP() << "this build has no runtime";
  }
  Outcome hardware(std::vector<std::string> more) const {
    std::vector<std::string> command = {"profile", "hardware"};
    command.insert(command.end(), more.begin(), more.end());
    return run_braid(command, folder_.path());
  }

  ScratchFolder folder_;
};

TEST_F(ProfileCommand, WritesWhatItMeasuredAndShowsIt) {
  const Outcome outcome =
      hardware({"--ranks", "2", "--max-message", "64KiB", "--limit", "3", "--out", "p.json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"threads of a rank", "copies", "Matrix products", "noise", "took"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const Profile profile = read_profile(folder_ / "p.json");
  ASSERT_TRUE(profile.cluster.has_value());
  EXPECT_EQ(profile.cluster->num_devices(), 2);
  // The journal stays where the limit left something out, and only there.
  EXPECT_EQ(std::filesystem::exists(folder_ / "p.json.journal"),
            outcome.out.find("left out") != std::string::npos);
}

TEST_F(ProfileCommand, AnswersPrograms) {
  const Json answer = json_of(
      hardware({"--max-message", "64KiB", "--limit", "2", "--out", "p.json", "--format", "json"}));
  EXPECT_EQ(answer.at("file"), "p.json");
  EXPECT_EQ(answer.at("profile"), read_json(folder_ / "p.json"));
  EXPECT_GT(answer.at("seconds"), 0);
}

TEST_F(ProfileCommand, RefusesALimitAboveTheDevice) {
  const Outcome outcome = hardware({"--memory", "4096TiB", "--out", "p.json"});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.error, HasSubstr("is above the"));
}

TEST_F(ProfileCommand, TellsMistakes) {
  write_text(folder_ / "notes.json.journal", "my own notes");
  struct Case {
    std::vector<std::string> flags;
    const char *what, *where;
  };
  const Case cases[] = {
      {{}, "--out is missing", "braid profile hardware"},
      {{"--out", "nowhere/p.json"}, "the folder 'nowhere' does not exist", "--out"},
      {{"--out", "p.json", "--max-message", "1KiB"},
       "say nothing about bandwidth",
       "--max-message"},
      {{"--out", "p.json", "--limit", "2min"}, "'2min' is not a whole number", "--limit"},
      {{"--out", "p.json", "--precision", "fp16"}, "'fp16'", "--precision"},
      {{"--out", "p.json", "--gradients", "bf16"}, "computes in fp32", "--gradients"},
      {{"--out", "p.json", "--backend", "mpi"},
       "no launcher started this process",
       "--backend mpi"},
      {{"--out", "notes.json"}, "no journal of a measurement", "notes.json.journal"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = hardware(c.flags);
    EXPECT_EQ(outcome.exit, 2) << c.what;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(c.what), HasSubstr(c.where), HasSubstr("fix:")));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "p.json"));
}

}  // namespace
}  // namespace braid
