// braid compare: a few small plans on threads, what is kept of them, and what it says of mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/explain/comparison.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

// A build without the runtime has the verb to say that it cannot.
bool can_compare() {
  const ScratchFolder folder;
  return run_braid({"compare", "--help"}, folder.path()).out.find("--rerun") != std::string::npos;
}

class CompareCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_compare()) GTEST_SKIP() << "this build has no runtime";
  }
  // On two of the cluster's devices.
  Outcome compare(std::vector<std::string> more) const {
    std::vector<std::string> command = {"compare",
                                        "--model",
                                        "model.json",
                                        "--cluster",
                                        "cluster.json",
                                        "--global-batch",
                                        "4",
                                        "--seq",
                                        "16",
                                        "--devices",
                                        "2",
                                        "--precision",
                                        "fp32",
                                        "--steps",
                                        "2",
                                        "--warmup-steps",
                                        "1",
                                        "--out",
                                        "results.json"};
    command.insert(command.end(), more.begin(), more.end());
    return run_braid(command, folder_.path());
  }
  Comparison results() const { return read_comparison(folder_ / "results.json"); }

  InputFolder folder_;
};

TEST_F(CompareCommand, MeasuresThePlansOfAlgorithmsAndSomeMore) {
  const Outcome outcome =
      compare({"--algorithms", "dp,tp,exact", "--more", "2", "--markdown", "table.md"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words :
       {"found by", "predicted", "measured", "Spearman", "exact is number", "the best is"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  EXPECT_THAT(read_text(folder_ / "table.md"), HasSubstr("| found by | plan |"));

  const Comparison found = results();
  int named = 0, unnamed = 0;
  for (const ComparedPlan& compared : found.plans) {
    named += static_cast<int>(compared.names.size());
    unnamed += compared.names.empty() ? 1 : 0;
    ASSERT_TRUE(compared.measured.has_value()) << compared.error;
    EXPECT_EQ(compared.measured->steps.size(), 2U);
    EXPECT_GT(compared.measured->seconds, Seconds(0));
    EXPECT_EQ(compared.plan.cluster.num_devices(), 2);
    EXPECT_THAT(outcome.out, HasSubstr(short_name(compared.plan)));
    EXPECT_THAT(outcome.error, HasSubstr(short_name(compared.plan)));
  }
  EXPECT_EQ(named, 3);
  EXPECT_EQ(unnamed, 2);
}

TEST_F(CompareCommand, PlansThatAreInTheFileAreNotRunAgain) {
  ASSERT_EQ(compare({"--algorithms", "dp"}).exit, 0);
  const Comparison before = results();
  ASSERT_EQ(before.plans.size(), 1U);
  const Outcome more = compare({"--algorithms", "tp,dp", "--more", "1"});
  ASSERT_EQ(more.exit, 0) << more.error;
  EXPECT_THAT(more.error, HasSubstr("1 of 2: tp"));
  const Comparison after = results();
  ASSERT_EQ(after.plans.size(), 3U);
  EXPECT_EQ(after.plans[1].names, std::vector<std::string>{"dp"});
  EXPECT_EQ(after.plans[1].measured->steps, before.plans[0].measured->steps);

  const Outcome again = compare({"--algorithms", "tp,dp", "--more", "1"});
  EXPECT_EQ(again.exit, 0);
  EXPECT_THAT(again.error, Not(HasSubstr(" of ")));
  EXPECT_EQ(to_json(results()).dump(), to_json(after).dump());

  ASSERT_EQ(compare({"--algorithms", "dp", "--rerun"}).exit, 0);
  ASSERT_EQ(results().plans.size(), 1U);
  EXPECT_NE(results().plans[0].measured->steps, before.plans[0].measured->steps);
}

TEST_F(CompareCommand, RoundsGoThroughAllPlans) {
  const std::vector<std::string> twice = {"--algorithms", "dp,tp", "--rounds", "2"};
  const Outcome outcome = compare(twice);
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* turn : {"1 of 4: dp", "2 of 4: tp", "3 of 4: dp", "4 of 4: tp"})
    EXPECT_THAT(outcome.error, HasSubstr(turn));
  const Comparison found = results();
  for (const ComparedPlan& compared : found.plans) EXPECT_EQ(compared.measured->steps.size(), 4U);
  EXPECT_THAT(compare(twice).error, Not(HasSubstr(" of ")));
  // A third round adds to what there is.
  ASSERT_EQ(compare({"--algorithms", "dp,tp", "--rounds", "3"}).exit, 0);
  EXPECT_EQ(results().plans[0].measured->steps.size(), 6U);
  EXPECT_EQ(results().plans[0].measured->steps[0], found.plans[0].measured->steps[0]);
}

TEST_F(CompareCommand, APlanThatEndedARunIsTriedAgainOnRequestOnly) {
  ASSERT_EQ(compare({"--algorithms", "dp"}).exit, 0);
  Comparison cut_off = results();
  cut_off.plans[0].measured.reset();
  cut_off.plans[0].error = "the run ended during this plan";
  write_text(folder_ / "results.json", to_json(cut_off).dump());
  const Outcome outcome = compare({"--algorithms", "dp"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("the run ended during this plan"));
  EXPECT_THAT(outcome.out, HasSubstr("1 failed"));
  ASSERT_EQ(compare({"--algorithms", "dp", "--retry"}).exit, 0);
  EXPECT_TRUE(results().plans[0].measured.has_value());
  EXPECT_EQ(results().plans[0].error, "");
}

TEST_F(CompareCommand, TakesPlansFromFiles) {
  const auto plan = [&](const char* sequence) {
    const Outcome planned =
        run_braid({"plan", "--model", "model.json", "--cluster", "cluster.json", "--global-batch",
                   "4", "--seq", sequence, "--devices", "2", "--precision", "fp32", "--algorithm",
                   "zero3", "--out", "plan.json"},
                  folder_.path());
    ASSERT_EQ(planned.exit, 0) << planned.error;
  };
  plan("16");
  const Outcome outcome = compare({"--algorithms", "tp", "--plan", "plan.json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_EQ(results().plans.back().names, std::vector<std::string>{"plan"});

  plan("32");
  const Outcome other = compare({"--algorithms", "tp", "--plan", "plan.json"});
  EXPECT_EQ(other.exit, 2);
  EXPECT_THAT(other.error, HasSubstr("the plan is for another model"));
}

TEST_F(CompareCommand, NoPlanThatFitsIsAnAnswer) {
  const Outcome outcome = compare({"--algorithms", "dp,exact", "--memory", "1MiB"});
  EXPECT_EQ(outcome.exit, 3) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("No plan fits"));
  EXPECT_THAT(outcome.out, HasSubstr("What would fit"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "results.json"));
}

TEST_F(CompareCommand, AnAlgorithmWithoutAPlanIsARowThatSaysSo) {
  // Data parallelism holds all states on each device; sharded ones take about half.
  const Outcome all = compare({"--algorithms", "dp,zero3"});
  ASSERT_EQ(all.exit, 0) << all.error;
  Bytes replicated, sharded;
  for (const ComparedPlan& compared : results().plans)
    (compared.has_name("dp") ? replicated : sharded) = compared.plan.prediction.stages.front().peak;
  ASSERT_LT(sharded, replicated);
  const Outcome outcome = compare({"--rerun", "--algorithms", "dp,zero3", "--memory",
                                   std::to_string((replicated.value() + sharded.value()) / 2)});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  ASSERT_EQ(results().missing.size(), 1U);
  EXPECT_EQ(results().missing[0].name, "dp");
  EXPECT_THAT(outcome.out, HasSubstr("none fits into"));
}

TEST_F(CompareCommand, SaysWhatWhereAndFixOfMistakes) {
  ASSERT_EQ(compare({"--algorithms", "dp"}).exit, 0);
  struct Case {
    const char* fact;
    std::vector<std::string> flags;
    std::vector<const char*> expect;
  };
  const std::vector<Case> cases = {
      {"an unknown algorithm", {"--algorithms", "dp,exakt"}, {"'exakt'", "did you mean 'exact'"}},
      {"results of another task", {"--memory", "4GiB"}, {"another task", "memory", "--rerun"}},
      {"more than a device has", {"--memory", "4096TiB"}, {"is above the", "--memory"}},
      {"a file in no folder", {"--markdown", "no/table.md"}, {"does not exist", "--markdown"}},
      {"steps that are none", {"--steps", "0"}, {"--steps"}},
      {"costs without a profile", {"--cost", "measured"}, {"needs a profile"}},
      {"a world of another size", {"--ranks", "3"}, {"3 ranks", "--ranks"}},
  };
  for (const Case& c : cases) {
    const Outcome outcome = compare(c.flags);
    EXPECT_EQ(outcome.exit, 2) << c.fact << outcome.out;
    for (const char* words : c.expect) EXPECT_THAT(outcome.error, HasSubstr(words)) << c.fact;
  }
}

}  // namespace
}  // namespace braid
