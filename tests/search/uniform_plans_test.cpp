// Plans of one strategy: legal, within memory, priced like any other, and a choice of them that
// shows every kind.

#include "planner/search/uniform_plans.h"

#include <gtest/gtest.h>

#include <set>

#include "planner/core/json.h"
#include "planner/cost/make_cost_model.h"
#include "planner/simulate/price_plan.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

using namespace literals;

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

SearchOptions options_of(Bytes memory) {
  SearchOptions options;
  options.global_batch = 16;
  options.memory_limit = memory;
  return options;
}

class UniformPlans : public testing::Test {
 protected:
  std::vector<Plan> plans(Bytes memory) const {
    return uniform_plans(model_, cluster_, nullptr, options_of(memory));
  }
  const Model model_ = read_model(kConfigs / "models/gpt2-xl.json", 1024);
  const Cluster cluster_ = read_cluster(kConfigs / "clusters/a100-80g-8.json");
};

const Strategy& first_block(const Plan& plan) { return plan.stages.front().strategies.at(1); }

TEST_F(UniformPlans, EachIsLegalFitsAndIsPricedLikeAnyOtherPlan) {
  const Bytes memory = 10_GiB;
  const std::vector<Plan> found = plans(memory);
  ASSERT_GT(found.size(), 50U);
  EXPECT_LT(found.size(), plans({}).size());
  const auto cost = make_cost_model({CostKind::roofline, Precision::bf16, Precision::fp32, 16},
                                    model_, cluster_, nullptr);
  Seconds before;
  std::set<std::string> texts;
  for (const Plan& plan : found) {
    EXPECT_NO_THROW(verify(plan, "uniform"));
    EXPECT_EQ(plan.prediction.iteration, price_plan(plan, *cost).iteration);
    EXPECT_GE(plan.prediction.iteration, before);
    before = plan.prediction.iteration;
    for (const StagePrediction& stage : plan.prediction.stages) EXPECT_LE(stage.peak, memory);
    texts.insert(plan_text(plan));
  }
  EXPECT_EQ(texts.size(), found.size()) << "each once";
}

TEST_F(UniformPlans, EveryBlockHasTheSameStrategy) {
  const std::vector<Plan> found = plans(10_GiB);
  ASSERT_FALSE(found.empty());
  for (const Plan& plan : found) {
    const Strategy& usual = first_block(plan);
    Strategy outside = usual;
    outside.recompute = Recompute::none;
    outside.ep = 1;
    for (const StagePlan& stage : plan.stages) {
      const std::vector<int> layers = layers_of(stage);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const bool block = model_.type_of(layers[i]).shape.kind == LayerKind::block;
        EXPECT_EQ(stage.strategies[i], block ? usual : outside);
      }
    }
  }
}

TEST_F(UniformPlans, TheFastestBaselineIsAmongThem) {
  for (const Algorithm algorithm : {Algorithm::dp, Algorithm::zero3, Algorithm::megatron_3d}) {
    SearchOptions options = options_of({});
    options.algorithm = algorithm;
    const SearchResult result = search(model_, cluster_, nullptr, options);
    ASSERT_TRUE(result.plan.has_value());
    const std::vector<Plan> found = plans({});
    const auto same = [&](const Plan& plan) {
      return plan.shape == result.plan->shape && first_block(plan) == first_block(*result.plan);
    };
    EXPECT_TRUE(std::ranges::any_of(found, same)) << name_of(algorithm);
  }
}

struct Kinds {
  std::set<int> stages, tensor, zero, recompute, schedules;
  void add(const Plan& plan) {
    const Strategy& s = first_block(plan);
    stages.insert(plan.shape.stages);
    tensor.insert(s.tp == 1 ? -1 : static_cast<int>(s.tp_kind));
    zero.insert(static_cast<int>(s.zero));
    recompute.insert(static_cast<int>(s.recompute));
    if (plan.shape.stages > 1) schedules.insert(static_cast<int>(plan.shape.schedule));
  }
  bool operator==(const Kinds&) const = default;
};

TEST_F(UniformPlans, AFewShowEveryKindThereIs) {
  const std::vector<Plan> found = plans({});
  Kinds all, shown;
  for (const Plan& plan : found)
    if (plan.prediction.iteration <= 3 * found.front().prediction.iteration) all.add(plan);
  EXPECT_GE(all.stages.size(), 3U);
  EXPECT_EQ(all.zero.size(), 4U);
  EXPECT_EQ(all.recompute.size(), 3U);
  const std::vector<Plan> few = spread(found, 7);
  ASSERT_EQ(few.size(), 7U);
  for (const Plan& plan : few) shown.add(plan);
  EXPECT_EQ(shown, all);
}

TEST_F(UniformPlans, TheRestLiesEvenlyUpToTheSlowest) {
  const std::vector<Plan> found = plans({});
  const Seconds fastest = found.front().prediction.iteration;
  const std::vector<Plan> some = spread(found, 40, 2);
  ASSERT_EQ(some.size(), 40U);
  Seconds before;
  for (const Plan& plan : some) {
    EXPECT_GE(plan.prediction.iteration, before);
    before = plan.prediction.iteration;
    EXPECT_LE(plan.prediction.iteration, 2 * fastest);
  }
  EXPECT_EQ(some.front().prediction.iteration, fastest);
  const auto within = static_cast<std::size_t>(std::ranges::count_if(
      found, [&](const Plan& p) { return p.prediction.iteration <= 2 * fastest; }));
  EXPECT_EQ(some.back().prediction.iteration, found[within - 1].prediction.iteration);
  // At most as many in a half of the ranks as evenness and the first ones allow.
  const Seconds middle = found[within / 2].prediction.iteration;
  const auto lower =
      std::ranges::count_if(some, [&](const Plan& p) { return p.prediction.iteration <= middle; });
  EXPECT_GE(lower, 14);
  EXPECT_LE(lower, 30);
}

TEST_F(UniformPlans, AskingForMoreThanThereAreGivesAll) {
  const Model tiny = tiny_model("llama", 2, 16);
  SearchOptions options;
  options.global_batch = 2;
  const std::vector<Plan> found = uniform_plans(tiny, tiny_cluster(2), nullptr, options);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(spread(found, 100000, 1e9).size(), found.size());
  EXPECT_EQ(spread(found, 1).size(), 1U);
  EXPECT_TRUE(spread({}, 5).empty());
}

}  // namespace
}  // namespace braid
