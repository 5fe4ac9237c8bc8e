// Parts of a plan that the user fixes: kept by every layer, and refused where they are impossible.

#include "planner/search/fixed_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/search/search.h"

namespace braid {
namespace {

using testing::HasSubstr;

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

Model model_named(const std::string& name, int blocks = 0) {
  const std::filesystem::path file = kConfigs / "models" / (name + ".json");
  Json json = read_json(file);
  if (blocks > 0) json[json.contains("n_layer") ? "n_layer" : "num_hidden_layers"] = blocks;
  return model_from_json(json, file.string(), 0);
}
Cluster node() { return read_cluster(kConfigs / "clusters/a100-80g-8.json"); }

SearchResult ask(const Model& model, const FixedParts& fixed, Algorithm algorithm = {},
                 std::int64_t batch = 16) {
  SearchOptions options;
  options.algorithm = algorithm;
  options.global_batch = batch;
  options.space.fixed = fixed;
  return search(model, node(), nullptr, options);
}

void expect_kept(const FixedParts& fixed, const Plan& plan) {
  EXPECT_TRUE(fixed.allows(plan.shape, plan.micro_batch(), plan.mesh().stage_devices()));
  for (const StagePlan& stage : plan.stages) {
    const std::vector<int> layers = layers_of(stage);
    for (std::size_t i = 0; i < layers.size(); ++i)
      EXPECT_TRUE(fixed.allows(plan.model.type_of(layers[i]).shape, stage.strategies[i],
                               plan.micro_batch()))
          << to_string(stage.strategies[i]);
  }
}

struct Kept {
  std::string fact;
  FixedParts fixed;
  std::string model = "gpt2";
};
class KeptParts : public testing::TestWithParam<Kept> {};

TEST_P(KeptParts, StandInEveryLayerOfThePlanAndItsAlternatives) {
  const SearchResult result = ask(model_named(GetParam().model, 4), GetParam().fixed);
  ASSERT_TRUE(result.plan.has_value());
  expect_kept(GetParam().fixed, *result.plan);
  for (const Alternative& other : result.alternatives) expect_kept(GetParam().fixed, other.plan);
  if (result.uniform) expect_kept(GetParam().fixed, *result.uniform);
  EXPECT_EQ(result.tree.fixed, GetParam().fixed);
}

INSTANTIATE_TEST_SUITE_P(
    All, KeptParts,
    testing::Values(Kept{"all_of_a_plan",
                         {.tp = 2,
                          .cp = 1,
                          .dp = 2,
                          .zero = Zero::optimizer,
                          .recompute = Recompute::selective,
                          .stages = 2,
                          .micro_batches = 8,
                          .replica_samples = 1}},
                    Kept{"tp_alone", {.tp = 4}}, Kept{"one_replica", {.dp = 1}},
                    Kept{"cp_beyond_its_rule", {.cp = 8}},
                    Kept{"ulysses", {.tp = 2, .tp_kind = TensorKind::ulysses}},
                    Kept{"squares", {.tp = 4, .tp_kind = TensorKind::spatial_temporal}},
                    Kept{"zero_3", {.zero = Zero::parameters}},
                    Kept{"full_recomputation_of_blocks", {.recompute = Recompute::full}},
                    Kept{"no_recomputation", {.recompute = Recompute::none}},
                    Kept{"experts", {.dp = 8, .ep = 4}, "mixtral-8x7b"},
                    Kept{"chunks", {.stages = 2, .chunks = 2}},
                    Kept{"fewer_micro_batches_than_stages", {.stages = 4, .micro_batches = 1}},
                    Kept{"samples_of_a_replica", {.replica_samples = 2}}),
    [](const auto& test) { return test.param.fact; });

struct Refused {
  std::string fact;
  FixedParts fixed;
  std::string what, where;
  SpaceOptions space = {};
};
class RefusedParts : public testing::TestWithParam<Refused> {};

TEST_P(RefusedParts, AreNamedWithTheirFlag) {
  SpaceOptions space = GetParam().space;
  space.fixed = GetParam().fixed;
  try {
    check_fixed(space, model_named("gpt2"), node(), 16);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.mistake().what, HasSubstr(GetParam().what));
    EXPECT_EQ(error.mistake().where, GetParam().where);
    EXPECT_FALSE(error.mistake().fix.empty());
  }
}

SpaceOptions with_max_tp(int most) {
  SpaceOptions space;
  space.max_tp = most;
  return space;
}
SpaceOptions scheduled(ScheduleKind kind) {
  SpaceOptions space;
  space.schedules = {kind};
  return space;
}

// gpt2 has 12 heads and 12 blocks; the node has 8 devices; the batch is 16.
INSTANTIATE_TEST_SUITE_P(
    All, RefusedParts,
    testing::Values(
        Refused{"more_than_the_devices",
                {.tp = 2, .cp = 1, .dp = 2, .stages = 4},
                "pp=4 · tp=2 · cp=1 · dp=2 = 16 devices, where the cluster has 8",
                "--pp, --tp, --cp, --dp"},
        Refused{
            "no_part_of_the_devices", {.dp = 3}, "dp=3 does not divide the cluster's 8", "--dp"},
        Refused{"heads",
                {.tp = 8, .tp_kind = TensorKind::megatron},
                "tp=8 does not divide the 12 attention heads",
                "--tp"},
        Refused{"stages_of_the_devices", {.stages = 3}, "3 stages do not share 8 devices", "--pp"},
        Refused{"experts_of_a_dense_model", {.ep = 2}, "no experts", "--ep"},
        Refused{"zero_without_replicas",
                {.cp = 1, .dp = 1, .tp_kind = TensorKind::megatron, .zero = Zero::optimizer},
                "zero=1",
                "--zero"},
        Refused{"micro_batches",
                {.micro_batches = 3},
                "do not divide a global batch of 16",
                "--micro-batches"},
        Refused{"samples",
                {.dp = 4, .micro_batches = 2, .replica_samples = 4},
                "make 32 samples, which are not the global batch of 16",
                "--micro-batch, --dp, --micro-batches"},
        Refused{"chunks_of_one_stage",
                {.stages = 1, .chunks = 2},
                "one stage has one chunk",
                "--chunks"},
        Refused{"chunks_of_the_blocks",
                {.stages = 8, .chunks = 2},
                "16 chunks of all stages do not share the 12 blocks",
                "--chunks"},
        Refused{"chunks_of_the_schedule",
                {.chunks = 2},
                "one chunk a stage",
                "--chunks",
                scheduled(ScheduleKind::one_f_one_b)},
        Refused{"beyond_a_limit", {.tp = 4}, "beyond --max-tp 2", "--tp", with_max_tp(2)},
        Refused{"interleaving_needs_whole_groups",
                {.stages = 4, .chunks = 3, .micro_batches = 2},
                "no pipeline of this model",
                "--pp 4 --chunks 3 --micro-batches 2"},
        Refused{"a_square_of_two",
                {.tp = 2, .tp_kind = TensorKind::spatial_temporal},
                "tp=2 is no multiple of a square",
                "--tp"}),
    [](const auto& test) { return test.param.fact; });

TEST(FixedParts, OfABaselineThatHasNoneOfThemAreRefused) {
  EXPECT_THROW(ask(model_named("gpt2"), {.tp = 4}, Algorithm::dp), Error);
}

TEST(FixedParts, AreNotLostToHeuristicRules) {
  const SearchResult result =
      ask(model_named("gpt2"), {.tp = 1, .stages = 4, .micro_batches = 2}, Algorithm::megatron_3d);
  ASSERT_TRUE(result.plan.has_value());
  EXPECT_EQ(result.plan->shape.micro_batches, 2);
}

TEST(UniformPlan, IsNoSlowerThanMegatronsAndNoFasterThanThePlan) {
  const Model model = model_named("llama2-7b", 8);
  const SearchResult exact = ask(model, {});
  const SearchResult megatron = ask(model, {}, Algorithm::megatron_3d);
  ASSERT_TRUE(exact.uniform && megatron.plan);
  const Seconds time = exact.uniform->prediction.iteration;
  EXPECT_GE(time, exact.plan->prediction.iteration);
  EXPECT_LE(time.value(), megatron.plan->prediction.iteration.value() * (1 + 1e-9));
  EXPECT_FALSE(megatron.uniform);
}

TEST(UniformPlan, HasOneStrategyForAllBlocksAndStagesOfOneSize) {
  const Plan plan = *ask(model_named("t5-512-4-32"), {.stages = 2}).uniform;
  std::optional<Strategy> blocks;
  for (const StagePlan& stage : plan.stages) {
    const std::vector<int> layers = layers_of(stage);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (plan.model.type_of(layers[i]).shape.kind != LayerKind::block) continue;
      EXPECT_EQ(stage.strategies[i], blocks.value_or(stage.strategies[i]));
      blocks = stage.strategies[i];
    }
  }
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->tp_kind, TensorKind::megatron);
  EXPECT_LE(blocks->zero, Zero::optimizer);
}

}  // namespace
}  // namespace braid
