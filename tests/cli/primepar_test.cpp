// braid primepar: what it prints for people and for programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::vector<std::string> primepar_command(std::vector<std::string> more = {}) {
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  std::vector<std::string> command{"primepar",
                                   "--model",
                                   (configs / "models/opt-175b.json").string(),
                                   "--cluster",
                                   (configs / "clusters/v100-32g-8x4.json").string(),
                                   "--devices",
                                   "8",
                                   "--micro-batch",
                                   "8",
                                   "--precision",
                                   "fp32"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST(PrimeparCommand, PrintsThePartitionOfEveryOperatorAndTheSchemesBeside) {
  const ScratchFolder folder;
  const Outcome outcome = run_braid(primepar_command({"--variant", "paper"}), folder.path());
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"{K, P2×2}", "{D, S, D}", "{N, P2×2}", "softmax", "redistribute",
                            "Megatron + SP", "2D SUMMA", "ZeRO-3", "96 layers"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
}

TEST(PrimeparCommand, AnswersProgramsWithTermsThatAddUp) {
  const ScratchFolder folder;
  const Json answer = json_of(run_braid(
      primepar_command({"--format", "json", "--pareto", "--accumulate", "4"}), folder.path()));
  EXPECT_EQ(answer.at("status"), "ok");
  EXPECT_EQ(answer.at("variant"), "plus_minus");
  EXPECT_EQ(answer.at("accumulate"), 4);
  const Json& layer = answer.at("layer");
  EXPECT_NEAR(layer.at("seconds").get<double>(),
              layer.at("compute").get<double>() + layer.at("exposed").get<double>(), 1e-12);
  ASSERT_EQ(answer.at("operators").size(), 13U);
  double compute = 0, redistribute = 0;
  for (std::size_t i = 1; i < 13; ++i) {
    compute += answer.at("operators")[i].at("compute").get<double>();
    redistribute += answer.at("operators")[i].at("redistribute").get<double>();
  }
  EXPECT_NEAR(compute, layer.at("compute").get<double>(), 1e-12);
  EXPECT_NEAR(redistribute, layer.at("redistribute").get<double>(), 1e-12);
  EXPECT_FALSE(answer.at("pareto").empty());
  EXPECT_EQ(answer.at("pareto").front().at("partitions").size(), 13U);
  for (const Json& scheme : answer.at("schemes"))
    EXPECT_EQ(scheme.at("data").get<int>() * scheme.at("inner").get<int>(), 8);
}

TEST(PrimeparCommand, NamesTheStrategiesOfTheLayerSearchThatRunItsPoints) {
  const ScratchFolder folder;
  const Outcome outcome = run_braid(primepar_command({"--pareto"}), folder.path());
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"are strategies of the layer search", "{N, P⁻2×2/B}  tp2 st2x2\n",
                            "{N, P⁻2×2/B}  -\n", "Strategies of the layer search that none"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const Json answer =
      json_of(run_braid(primepar_command({"--pareto", "--format", "json"}), folder.path()));
  const Json& front = answer.at("executable_front");
  EXPECT_EQ(front.front().at("name"), "tp2 st2x2");
  EXPECT_EQ(front.front().at("mesh_order"), "pp_dp_cp_tp");
  // The optimiser's best for this layer is the runtime's best.
  EXPECT_NEAR(front.front().at("layer").at("seconds").get<double>(),
              answer.at("layer").at("seconds").get<double>(), 1e-6);
  EXPECT_TRUE(std::ranges::any_of(
      answer.at("pareto"), [](const Json& point) { return !point.at("strategy").is_null(); }));
}

// ViT has 197 tokens, which tensor parallelism would cut in two.
TEST(PrimeparCommand, NamesNoStrategyThatAPlanMayNotHold) {
  const ScratchFolder folder;
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  const Json answer =
      json_of(run_braid({"primepar", "--model", (configs / "models/vit-huge-32.json").string(),
                         "--cluster", (configs / "clusters/a100-80g-8.json").string(), "--devices",
                         "2", "--micro-batch", "8", "--pareto", "--format", "json"},
                        folder.path()));
  ASSERT_FALSE(answer.at("executable_front").empty());
  std::set<std::string> named;
  for (const Json& layer : answer.at("executable_front")) named.insert(layer.at("name"));
  for (const Json& point : answer.at("pareto"))
    if (!point.at("strategy").is_null()) named.insert(point.at("strategy").at("name"));
  EXPECT_EQ(named, std::set<std::string>{"dp2"});
}

TEST(PrimeparCommand, APriceOnMemoryBuysLessOfIt) {
  const ScratchFolder folder;
  const auto memory = [&](const char* alpha) {
    const Json layer =
        json_of(run_braid(
                    primepar_command({"--format", "json", "--variant", "paper", "--alpha", alpha}),
                    folder.path()))
            .at("layer");
    return layer.at("states_bytes").get<double>() + layer.at("stash_bytes").get<double>();
  };
  EXPECT_LT(memory("10"), memory("0"));
}

}  // namespace
}  // namespace braid
