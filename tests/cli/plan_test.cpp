// braid plan: the keys that programs rely on, the exit statuses, and what is written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/plan/plan.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, unused] : json.items()) keys.push_back(key);
  return keys;
}

TEST(PlanCommand, AnswersProgramsWithFixedKeys) {
  const InputFolder folder;
  const Json answer = json_of(run_braid(plan_command({"--format", "json"}), folder.path()));
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_of(answer), (Keys{"status", "predicted", "search", "balance", "plan", "uniform",
                                   "alternatives", "fewer_devices"}));
  EXPECT_EQ(answer.at("status"), "ok");
  EXPECT_EQ(keys_of(answer.at("predicted")),
            (Keys{"iteration_seconds", "samples_per_second", "tokens_per_second",
                  "flops_per_sample", "mfu", "physics_bound_seconds", "peak_flops_per_second",
                  "bubble_fraction", "lower_bound_seconds", "gap", "physics_excess", "time",
                  "peak_memory_bytes", "memory_bytes"}));
  EXPECT_EQ(keys_of(answer.at("search")),
            (Keys{"algorithm", "seconds", "cpu_seconds", "lower_bound_seconds",
                  "physics_bound_seconds", "gap", "configurations", "solved", "open", "left_out",
                  "interrupted", "ended_by", "fixed"}));
  EXPECT_EQ(keys_of(answer.at("balance")), (Keys{"time", "memory"}));
  ASSERT_FALSE(answer.at("alternatives").empty());
  for (const char* key : {"iteration_seconds", "reason", "shape"})
    EXPECT_TRUE(answer.at("alternatives").front().contains(key)) << key;
  EXPECT_EQ(answer.at("plan").at("stages").size(),
            answer.at("predicted").at("peak_memory_bytes").size());
}

TEST(PlanCommand, FixesWhatFlagsNameAndSearchesTheRest) {
  const InputFolder folder;
  const Json answer = json_of(run_braid(
      plan_command({"--tp", "2", "--pp", "1", "--zero", "1", "--tree", "--format", "json"}),
      folder.path()));
  EXPECT_EQ(answer.at("search").at("fixed"), "--tp 2 --pp 1 --zero 1");
  EXPECT_EQ(answer.at("tree").at("fixed"), "--tp 2 --pp 1 --zero 1");
  for (const Json& run : answer.at("plan").at("stages").at(0).at("strategies")) {
    EXPECT_EQ(run.at("tp"), 2);
    EXPECT_EQ(run.at("zero"), 1);
  }
}

TEST(PlanCommand, NamesTheBestUniformPlan) {
  const InputFolder folder;
  const std::string text = run_braid(plan_command(), folder.path()).out;
  EXPECT_THAT(text, HasSubstr("  uniform  "));
  const Json uniform =
      json_of(run_braid(plan_command({"--format", "json"}), folder.path())).at("uniform");
  EXPECT_EQ(keys_of(uniform),
            (std::vector<std::string>{"iteration_seconds", "slower", "shape", "plan"}));
  EXPECT_GE(uniform.at("slower"), 0);
  EXPECT_THAT(text, HasSubstr(uniform.at("shape").get<std::string>()));
}

TEST(PlanCommand, AnswersProgramsWhereNothingFits) {
  const InputFolder folder;
  const Outcome outcome =
      run_braid(plan_command({"--memory", "64MiB", "--format", "json"}), folder.path());
  EXPECT_EQ(outcome.exit, 3) << outcome.error;
  const Json answer = parse_json(outcome.out, "standard output");
  EXPECT_EQ(answer.at("status"), "infeasible");
  EXPECT_TRUE(answer.at("plan").is_null());
  const Json& why = answer.at("infeasible");
  EXPECT_EQ(keys_of(why),
            (std::vector<std::string>{"constraint", "reason", "stage", "needed_bytes",
                                      "available_bytes", "breakdown", "enough_memory_bytes",
                                      "enough_batch", "enough_devices", "closest", "rule"}));
  const Json& closest = why.at("closest");
  EXPECT_EQ(closest.at("plan").at("global_batch"), 8);
  EXPECT_THAT(run_braid(plan_command({"--memory", "64MiB"}), folder.path()).out,
              HasSubstr(closest.at("shape").get<std::string>()));
  EXPECT_GT(why.at("needed_bytes"), why.at("available_bytes"));
  EXPECT_EQ(why.at("available_bytes"), 64 << 20);
}

TEST(PlanCommand, WritesTheSamePlanThatItPrints) {
  const InputFolder folder;
  const Json answer =
      json_of(run_braid(plan_command({"--format", "json", "--out", "plan.json"}), folder.path()));
  EXPECT_EQ(read_json(folder / "plan.json"), answer.at("plan"));
  EXPECT_EQ(read_plan(folder / "plan.json").global_batch, 8);
}

TEST(PlanCommand, LeavesNoFileWhereNothingFits) {
  const InputFolder folder;
  run_braid(plan_command({"--memory", "64MiB", "--out", "plan.json"}), folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder / "plan.json"));
}

TEST(PlanCommand, TellsPeopleWhatTheyAskFor) {
  const InputFolder folder;
  const Outcome outcome = run_braid(plan_command(), folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words :
       {"parameters", "samples/s", "tokens/s", "MFU", "TFLOP/s", "optimality", "Stages",
        "Memory of one device", "Where the time goes", "iteration", "Alternatives", "why it lost"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "color without a terminal";
  EXPECT_EQ(outcome.error, "");
}

// A CUDA context and communicators' buffers would take 1.75 of a thread's 2 GiB.
TEST(PlanCommand, CpuRanksHaveAllOfTheirMemoryForTensors) {
  const InputFolder folder;
  const std::filesystem::path examples =
      std::filesystem::path(BRAID_SOURCE_DIR) / "configs/examples";
  const Json answer =
      json_of(run_braid({"plan", "--model", (examples / "llama-30m.json").string(), "--cluster",
                         (examples / "four-threads.json").string(), "--global-batch", "8",
                         "--precision", "fp32", "--algorithm", "dp", "--format", "json"},
                        folder.path()));
  const Json& plan = answer.at("plan");
  ASSERT_EQ(plan.at("stages").size(), 1U);
  for (const Json& run : plan.at("stages")[0].at("strategies")) {
    EXPECT_EQ(run.at("dp"), 4);
    EXPECT_EQ(run.at("zero"), 0);
  }
  EXPECT_EQ(plan.at("prediction").at("stages")[0].at("overhead"), 0);
  EXPECT_EQ(plan.at("cluster").at("devices").at("thread").at("kind"), "cpu");
}

TEST(PlanCommand, ShowsTheTreeAndHowToOpenIt) {
  const InputFolder folder;
  const Outcome outcome = run_braid(plan_command({"--tree"}), folder.path());
  for (const char* words : {"Decision tree", "1 stage × 4 devices", "kept", "fill-pipeline",
                            "--no-rule NAME", "Where the time goes"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const auto configurations = [&](std::vector<std::string> more) -> int {
    more.insert(more.end(), {"--tree", "--format", "json"});
    return json_of(run_braid(plan_command(more), folder.path())).at("tree").at("configurations");
  };
  EXPECT_GT(configurations({"--algorithm", "bmw", "--no-rule", "fill-pipeline"}),
            configurations({"--algorithm", "bmw"}));
  EXPECT_EQ(configurations({"--no-rule", "fill-pipeline"}), configurations({}))
      << "it prunes nothing of what is proven";
}

TEST(PlanCommand, KeepsWithinTheLimitsItIsGiven) {
  const InputFolder folder;
  const Json answer = json_of(run_braid(
      plan_command({"--schedule", "gpipe,1f1b", "--max-tp", "1", "--max-cp", "1", "--no-recompute",
                    "--devices", "2", "--seq", "256", "--threads", "1", "--format", "json"}),
      folder.path()));
  const Plan plan = plan_from_json(answer.at("plan"), "standard output");
  EXPECT_EQ(plan.cluster.num_devices(), 2);
  EXPECT_EQ(plan.model.sequence, 256);
  for (const StagePlan& stage : plan.stages)
    for (const Strategy& s : stage.strategies) {
      EXPECT_EQ(s.tp, 1);
      EXPECT_EQ(s.cp, 1);
      EXPECT_EQ(s.recompute, Recompute::none);
    }
}

TEST(PlanCommand, ShowsNoBoundAndNoAlternativesWhereNoneIsWanted) {
  const InputFolder folder;
  const Json answer = json_of(run_braid(
      plan_command({"--format", "json", "--algorithm", "bmw", "--no-bound", "--alternatives", "0"}),
      folder.path()));
  EXPECT_TRUE(answer.at("alternatives").empty());
  EXPECT_TRUE(answer.at("search").at("lower_bound_seconds").is_null());
  EXPECT_TRUE(answer.at("search").at("gap").is_null());
}

TEST(PlanCommand, EveryAlgorithmAnswers) {
  const InputFolder folder;
  for (const char* name : {"exact", "galvatron", "bmw", "dp", "zero3", "tp", "pp", "megatron-3d"}) {
    const Json answer =
        json_of(run_braid(plan_command({"--algorithm", name, "--format", "json"}), folder.path()));
    EXPECT_EQ(answer.at("search").at("algorithm"), name);
  }
}

TEST(PlanCommand, PricesWithAProfileAndRemembersIt) {
  const InputFolder folder;
  const Json answer = json_of(
      run_braid(plan_command({"--profile", "profile.json", "--format", "json"}), folder.path()));
  EXPECT_EQ(answer.at("plan").at("cost"), "measured");
  EXPECT_EQ(answer.at("plan").at("profile").at("file"), "profile.json");
  EXPECT_EQ(answer.at("plan").at("profile").at("fingerprint").get<std::string>().size(), 16U);
}

TEST(Program, KnowsItsVersion) {
  const InputFolder folder;
  const std::string project = read_text(std::filesystem::path(BRAID_SOURCE_DIR) / "CMakeLists.txt");
  const Outcome version = run_braid({"--version"}, folder.path());
  EXPECT_EQ(version.exit, 0);
  ASSERT_TRUE(version.out.starts_with("braid ")) << version.out;
  const std::string number = version.out.substr(6, version.out.find(',') - 6);
  EXPECT_THAT(project, HasSubstr("project(braid VERSION " + number));
}

TEST(PlanCommand, TakesPrecisionsFromTheProfileAsFarAsTheyGoTogether) {
  const InputFolder folder;
  Json profile = read_json(folder / "profile.json");
  profile["gradient_precision"] = "bf16";
  write_text(folder / "profile.json", profile.dump());
  const auto planned = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> more = {"--profile", "profile.json"};
    more.insert(more.end(), flags.begin(), flags.end());
    make_plan(folder.path(), more);
    const Json plan = read_json(folder / "plan.json");
    return plan.at("precision").get<std::string>() + ", gradients " +
           plan.at("gradient_precision").get<std::string>();
  };
  EXPECT_EQ(planned({}), "bf16, gradients bf16");
  EXPECT_EQ(planned({"--gradients", "fp32"}), "bf16, gradients fp32");
}

}  // namespace
}  // namespace braid
