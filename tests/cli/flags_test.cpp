// Flags that all verbs share: their names, the names they had, and a flag that is given twice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Renamed {
  std::vector<std::string> verb;
  std::string before, now;
};
const Renamed kRenamed[] = {
    {{"auto"}, "--decay", "--lr-decay"},
    {{"auto"}, "--json", "--out"},
    {{"auto"}, "--warmup", "--lr-warmup"},
    {{"bench", "step"}, "--batch", "--global-batch"},
    {{"bench", "step"}, "--json", "--out"},
    {{"bench", "step"}, "--warmup", "--warmup-steps"},
    {{"compare"}, "--plans", "--plan"},
    {{"compare"}, "--warmup", "--warmup-steps"},
    {{"primepar"}, "--batch", "--micro-batch"},
    {{"primepar"}, "--sequence", "--seq"},
    {{"simulate"}, "--memory", "--allocator"},
    {{"train"}, "--decay", "--lr-decay"},
    {{"train"}, "--json", "--out"},
    {{"train"}, "--warmup", "--lr-warmup"},
};

TEST(FlagNames, FormerNamesAreKnownButNotInHelp) {
  const InputFolder folder;
  for (const Renamed& renamed : kRenamed) {
    std::vector<std::string> command = renamed.verb;
    command.emplace_back("--help");
    const Outcome help = run_braid(command, folder.path());
    EXPECT_THAT(help.out, HasSubstr(" " + renamed.now + " ")) << renamed.verb.front();
    EXPECT_THAT(help.out, Not(HasSubstr(" " + renamed.before + " "))) << renamed.verb.front();
    // The flag is read, so that what is missing or wrong is something else.
    command.back() = renamed.before + "=x";
    const Outcome used = run_braid(command, folder.path());
    EXPECT_THAT(used.error, HasSubstr(renamed.before + " of 'braid " + renamed.verb.front() +
                                      "' is called " + renamed.now + " now"));
    EXPECT_THAT(used.error, Not(HasSubstr("is not known here"))) << used.error;
  }
}

TEST(FlagNames, AFormerNameDoesWhatThePresentOneDoes) {
  const InputFolder folder;
  make_plan(folder.path());
  const Outcome now = run_braid({"simulate", "plan.json", "--allocator"}, folder.path());
  const Outcome before = run_braid({"simulate", "plan.json", "--memory"}, folder.path());
  ASSERT_EQ(now.exit, 0) << now.error;
  EXPECT_EQ(now.error, "");
  EXPECT_EQ(before.out, now.out);
}

TEST(FlagNames, OfSeveralProcessesTheFirstTellsOfAFormerName) {
  const InputFolder folder;
  make_plan(folder.path());
  for (const char* rank : {"0", "1"}) {
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    const Outcome outcome = run_braid({"simulate", "plan.json", "--memory"}, folder.path());
    unsetenv("OMPI_COMM_WORLD_RANK");
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    EXPECT_EQ(outcome.error.find("is called --allocator now") != std::string::npos,
              std::string(rank) == "0")
        << outcome.error;
  }
}

TEST(FlagNames, APlanIsAWordOrAFlag) {
  const InputFolder folder;
  make_plan(folder.path());
  for (const std::string verb : {"check", "explain", "simulate"}) {
    const Outcome word = run_braid({verb, "plan.json"}, folder.path());
    const Outcome flag = run_braid({verb, "--plan", "plan.json"}, folder.path());
    ASSERT_EQ(word.exit, 0) << word.error;
    EXPECT_EQ(word.out, flag.out) << verb;
  }
}

TEST(FlagNames, OfAFlagThatIsGivenTwiceTheLastCounts) {
  const InputFolder folder;
  const Outcome twice =
      run_braid(plan_command({"--global-batch", "16", "--format", "json"}), folder.path());
  EXPECT_EQ(json_of(twice)["plan"]["global_batch"], 16);
}

TEST(FlagNames, AListTakesAllThatIsGiven) {
  const InputFolder folder;
  const Outcome twice = run_braid(
      plan_command({"--schedule", "gpipe", "--schedule", "1f1b", "--schedule", "nonsense"}),
      folder.path());
  EXPECT_EQ(twice.exit, 2);
  EXPECT_THAT(twice.error, HasSubstr("nonsense"));
  const Outcome both =
      run_braid(plan_command({"--schedule", "gpipe", "--schedule", "1f1b"}), folder.path());
  EXPECT_EQ(both.exit, 0) << both.error;
}

}  // namespace
}  // namespace braid
