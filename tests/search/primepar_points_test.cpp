// What PrimePar's operators add to the tree and to plans.

#include "planner/search/primepar_points.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/cost/make_cost_model.h"
#include "planner/plan/legal.h"
#include "planner/primepar/executable.h"
#include "planner/search/exact_search.h"
#include "planner/search/search.h"

namespace braid {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

Model model_of(const std::string& name, int tokens = 0) {
  const std::filesystem::path file = kConfigs / "models" / (name + ".json");
  return tokens > 0 ? read_model(file, tokens) : read_model(file);
}

Cluster cluster_of(const std::string& name, int devices) {
  return shrink(read_cluster(kConfigs / "clusters" / (name + ".json")), devices);
}

SearchOptions batch_of(std::int64_t batch) {
  SearchOptions options;
  options.global_batch = batch;
  options.alternatives = 0;
  return options;
}

const TreeLeaf& leaf_of(const DecisionTree& tree, const std::string& name) {
  const std::vector<TreeLeaf>& leaves = tree.branches.front().leaves;
  const auto found = std::ranges::find_if(
      leaves, [&](const TreeLeaf& leaf) { return to_string(leaf.strategy) == name; });
  EXPECT_NE(found, leaves.end()) << name;
  return *found;
}

TEST(PrimeparPoints, EveryLayerThatPartitionsDescribeIsALeaf) {
  for (const char* name : {"gpt2", "llama2-70b", "opt-175b"})
    for (const int devices : {4, 8, 16}) {
      const Model model = model_of(name);
      const Cluster cluster = cluster_of("v100-32g-8x4", devices);
      PrimeparTask task = primepar_task(model, name);
      task.batch = 16;
      SpaceOptions space;
      space.max_pp = 1;
      const DecisionTree tree = build_tree(model, cluster, task.batch, space);
      int legal = 0;
      for (const ExecutableLayer& layer :
           executable_layers(task, PrimeparMachine(cluster, task.precision))) {
        if (strategy_fault(task.block, layer.strategy, task.batch)) continue;
        ++legal;
        leaf_of(tree, to_string(layer.strategy));
      }
      EXPECT_GT(legal, 5) << name << " on " << devices;
    }
}

TEST(PrimeparPoints, ASquareOnTheFrontIsSparedAndTheRestStayPruned) {
  const Model model = model_of("opt-175b");
  const Cluster cluster = cluster_of("v100-32g-8x4", 8);
  SearchOptions options = batch_of(8);
  options.precision = Precision::fp32;
  DecisionTree tree = searched_tree(model, cluster, nullptr, options);
  EXPECT_EQ(tree.without_points, "");
  // What the optimiser finds for this layer, across two nodes of four.
  const TreeLeaf& square = leaf_of(tree, "tp2 st2x2");
  EXPECT_TRUE(square.on_front);
  EXPECT_FALSE(square.pruned_by);
  EXPECT_EQ(square.spared_from, Rule::unmeasured_squares);
  EXPECT_FALSE(leaf_of(tree, "tp2 st2x2 recompute-full").pruned_by) << "with all that it may have";
  EXPECT_EQ(leaf_of(tree, "st2x2 cp2").pruned_by, Rule::unmeasured_squares);
  EXPECT_GT(tree.left_out().at(Rule::unmeasured_squares), 0);
  EXPECT_FALSE(leaf_of(tree, "cp8").on_front);
  EXPECT_FALSE(leaf_of(tree, "cp8").pruned_by) << "a heuristic prunes nothing that is proven";

  options.space.rules_off = {Rule::unmeasured_squares};
  EXPECT_FALSE(leaf_of(searched_tree(model, cluster, nullptr, options), "st2x2 cp2").pruned_by);

  const DecisionTree narrow = without_points(tree);
  EXPECT_EQ(leaf_of(narrow, "tp2 st2x2").pruned_by, Rule::unmeasured_squares);
  options.space = {};
  options.space.primepar = false;
  const DecisionTree plain = searched_tree(model, cluster, nullptr, options);
  EXPECT_EQ(kept_strategies(narrow.branches.front()), kept_strategies(plain.branches.front()));
}

TEST(PrimeparPoints, RulesHoldForSplitsThatAProfileHasNotTimed) {
  const Model model = model_of("llama2-7b");
  const Cluster cluster = cluster_of("a100-80g-8", 8);
  SpaceOptions space;
  const auto tree_with = [&](const Profile& profile) {
    DecisionTree tree = build_tree(model, cluster, 8, space);
    add_primepar_points(tree, model, cluster, {Precision::bf16, &profile});
    return tree;
  };
  Profile profile;
  profile.layers.resize(1);
  profile.layers[0].compute.resize(1);
  const DecisionTree untimed = tree_with(profile);
  EXPECT_TRUE(leaf_of(untimed, "tp2 st2x2").on_front);
  EXPECT_EQ(leaf_of(untimed, "tp2 st2x2").pruned_by, Rule::unmeasured_squares);
  EXPECT_NE(untimed.without_points.find("has not timed"), std::string::npos)
      << untimed.without_points;
  ComputeSample square;
  square.kind = TensorKind::spatial_temporal;
  square.split = 8;
  profile.layers[0].compute.push_back(square);
  const DecisionTree timed = tree_with(profile);
  EXPECT_FALSE(leaf_of(timed, "tp2 st2x2").pruned_by);
  EXPECT_EQ(leaf_of(timed, "st2x2 dp2").pruned_by, Rule::unmeasured_squares) << "of 4 devices";
}

TEST(PrimeparPoints, ATreeWithoutThemSaysWhy) {
  const auto why = [](const char* model, const Cluster& cluster) {
    return searched_tree(model_of(model), cluster, nullptr, batch_of(8)).without_points;
  };
  EXPECT_EQ(why("mixtral-8x7b", cluster_of("a100-80g-8", 8)),
            "a mixture of experts has no place in the layer graph");
  EXPECT_EQ(why("llama2-7b", read_cluster(kConfigs / "clusters" / "a100-v100-mixed.json")),
            "the nodes differ");
  SearchOptions bmw = batch_of(8);
  bmw.algorithm = Algorithm::bmw;
  const DecisionTree tree =
      searched_tree(model_of("llama2-7b"), cluster_of("a100-80g-8", 8), nullptr, bmw);
  EXPECT_FALSE(leaf_of(tree, "dp8").on_front) << "the papers' algorithms keep to their spaces";
}

struct Compared {
  SearchResult with;
  double faster;  // than without points
};

Compared compare(const Model& model, const Cluster& cluster, SearchOptions options) {
  Compared compared{search(model, cluster, nullptr, options), 0};
  options.space.primepar = false;
  const SearchResult without = search(model, cluster, nullptr, options);
  compared.faster = without.plan->prediction.iteration / compared.with.plan->prediction.iteration;
  return compared;
}

// One sample for two nodes, without rings: whatever is gathered crosses a slow link, and a square
// passes less.
TEST(PrimeparPoints, APlanOfSquaresIsFaster) {
  SearchOptions options = batch_of(1);
  options.space.max_cp = 1;
  const auto [result, faster] =
      compare(model_of("bloom-7b1", 2048), cluster_of("v100-32g-8x4", 8), options);
  EXPECT_GT(faster, 1.1);
  int squares = 0, others = 0;
  const Plan& plan = *result.plan;
  for (const StagePlan& stage : plan.stages) {
    const std::vector<int> layers = layers_of(stage);
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (plan.model.type_of(layers[i]).shape.kind == LayerKind::block)
        ++(stage.strategies[i].square > 1 ? squares : others);
  }
  EXPECT_GT(squares, 0);
  EXPECT_EQ(squares + others, 30);
  EXPECT_LE(plan.certificate.lower_bound, plan.prediction.iteration);
}

// One sample fills no pipeline. Points must not keep the search from plans with idle stages.
TEST(PrimeparPoints, NeverMakeAPlanSlower) {
  const Compared compared =
      compare(model_of("llama2-7b", 2048), cluster_of("v100-32g-8x4", 8), batch_of(1));
  EXPECT_GE(compared.faster, 1 - 1e-9);
}

TEST(PrimeparPoints, PlansThatWereFoundWithoutThemStayInTheRace) {
  const Model model = model_of("gpt2");
  const Cluster cluster = cluster_of("a100-80g-8", 4);
  const SearchOptions options = batch_of(4);
  const auto cost = make_cost_model({.global_batch = 4}, model, cluster, nullptr);
  const SearchContext context{model, cluster, *cost, Bytes()};
  const Plan known = *search(model, cluster, nullptr, options).plan;
  const Exploration found =
      explore_exactly(context, DecisionTree{}, options,
                      {.known = {{known, true}}, .alternatives_known = true, .others = {}});
  ASSERT_EQ(found.ranked.size(), 1U);
  EXPECT_EQ(found.ranked.front().plan.prediction.iteration, known.prediction.iteration);
  EXPECT_EQ(found.lower_bound, known.prediction.iteration.value());
}

}  // namespace
}  // namespace braid
