// The clever search against its dumb twin, over thousands of problems small enough for both.

#include <gtest/gtest.h>

#include <limits>

#include "planner/search/brute_force.h"
#include "planner/search/stage_search.h"
#include "tests/search/random_problem.h"

namespace braid {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRelative = 1e-12;
constexpr int kProblems = 600;  // of each family

constexpr ProblemFamily kFamilies[] = {
    {.fact = "alike_blocks", .most_types = 1},
    {.fact = "several_types"},
    {.fact = "no_embedding", .most_types = 2, .outside = false},
    {.fact = "pairs_of_blocks", .most_types = 1, .multiple = 2},
    {.fact = "pairs_of_types", .multiple = 2, .outside = false},
    {.fact = "two_layouts", .layouts = 2},
    {.fact = "three_layouts", .most_types = 2, .layouts = 3},
    {.fact = "ties", .most_types = 2, .layouts = 2, .ties = true},
    {.fact = "ties_of_alike_blocks", .most_types = 1, .layouts = 3, .ties = true},
    {.fact = "bytes", .most_types = 2, .layouts = 2, .bytes = true},
    {.fact = "odd_ramps", .layouts = 2, .odd_ramps = true},
    {.fact = "odd_ramps_of_alike_blocks", .most_types = 1, .odd_ramps = true},
    {.fact = "missing_options", .layouts = 2, .gaps = true},
};

class ExactSearch : public testing::TestWithParam<ProblemFamily> {
 protected:
  template <class Check>
  void for_each_problem(Check check) {
    for (int i = 0; i < kProblems; ++i) {
      SCOPED_TRACE("problem " + std::to_string(i));
      const PipelineProblem problem =
          ProblemDice(GetParam(), static_cast<std::uint64_t>(i)).problem();
      check(problem, brute_force(problem));
      if (HasFailure()) return;
    }
  }
};

bool near(double a, double b) {
  return std::abs(a - b) <= kRelative * std::max(std::abs(a), std::abs(b));
}

std::optional<PipelineSolution> found_below(const PipelineProblem& problem, double limit) {
  const PipelineResult result = search_pipeline(problem, {.time = limit});
  EXPECT_TRUE(result.complete);
  return result.solution;
}

// Whether a solution is what it claims to be.
void expect_sound(const PipelineProblem& problem, const PipelineSolution& solution) {
  ASSERT_EQ(solution.blocks.size(), problem.stages.size());
  ASSERT_EQ(solution.stages.size(), problem.stages.size());
  int begin = 0;
  for (std::size_t s = 0; s < problem.stages.size(); ++s) {
    EXPECT_EQ(solution.blocks[s] % problem.multiple, 0);
    const auto layers = stage_layers(problem, static_cast<int>(s), begin, solution.blocks[s]);
    std::int64_t memory = 0;
    std::int64_t workspace = 0;
    ASSERT_EQ(solution.stages[s].choice.size(), layers.size());
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const LayerOption& o =
          layers[l]->options.at(static_cast<std::size_t>(solution.stages[s].choice[l]));
      memory += o.memory;
      workspace = std::max(workspace, o.workspace);
    }
    EXPECT_LE(memory + workspace, problem.stages[s].budget) << "stage " << s;
    EXPECT_EQ(memory, solution.stages[s].memory);
    EXPECT_EQ(workspace, solution.stages[s].workspace);
    begin += solution.blocks[s];
  }
  EXPECT_EQ(begin, static_cast<int>(problem.blocks.size()));
  EXPECT_PRED2(near, time_of(problem, solution), solution.time);
}

// Calls with every way to cut the blocks into stages.
template <class Visit>
void each_cut(const PipelineProblem& problem, std::vector<int>& cuts, int left,
              const Visit& visit) {
  const int behind = static_cast<int>(problem.stages.size() - cuts.size());
  if (behind == 0) {
    if (left == 0) visit(cuts);
    return;
  }
  for (int count = problem.multiple; count <= left; count += problem.multiple) {
    cuts.push_back(count);
    each_cut(problem, cuts, left - count, visit);
    cuts.pop_back();
  }
}

TEST_P(ExactSearch, FindsTheTimeThatEnumerationFinds) {
  for_each_problem([](const PipelineProblem& problem, const auto& truth) {
    const auto found = found_below(problem, kInfinity);
    ASSERT_EQ(found.has_value(), truth.has_value());
    if (!truth) return;
    EXPECT_PRED2(near, found->time, truth->time);
    expect_sound(problem, *found);
  });
}

TEST_P(ExactSearch, IsAskedWhatFitsAndWhatDoesNot) {
  int feasible = 0;
  for_each_problem([&](const PipelineProblem&, const auto& truth) { feasible += truth ? 1 : 0; });
  EXPECT_GT(feasible, kProblems / 4);
  EXPECT_LT(feasible, kProblems - kProblems / 20);
}

TEST_P(ExactSearch, KeepsToItsLimit) {
  for_each_problem([](const PipelineProblem& problem, const auto& truth) {
    if (!truth) return;
    const auto above = found_below(problem, truth->time * (1 + 1e-6));
    ASSERT_TRUE(above.has_value());
    EXPECT_PRED2(near, above->time, truth->time);
    EXPECT_FALSE(found_below(problem, truth->time * (1 - 1e-6)).has_value());
  });
}

TEST_P(ExactSearch, IsTheBestOverAllCuts) {
  for_each_problem([](const PipelineProblem& problem, const auto& truth) {
    double best = kInfinity;
    std::vector<int> cuts;
    each_cut(problem, cuts, static_cast<int>(problem.blocks.size()), [&](const auto& each) {
      const PipelineResult result = search_cuts(problem, each, {.time = kInfinity});
      if (!result.solution) return;
      expect_sound(problem, *result.solution);
      EXPECT_EQ(result.solution->blocks, each);
      best = std::min(best, result.solution->time);
    });
    ASSERT_EQ(best < kInfinity, truth.has_value());
    if (!truth) return;
    EXPECT_PRED2(near, best, truth->time);
  });
}

TEST_P(ExactSearch, BoundsLieBelowTheOptimum) {
  for_each_problem([](const PipelineProblem& problem, const auto& truth) {
    if (!truth) return;
    const double slack = 1 + kRelative;
    EXPECT_LE(pipeline_bound(problem), truth->time * slack);
    for (const PipelineProblem& simpler : relaxations(problem)) {
      const auto bound = bound_below(simpler, truth->time * (1 + 1e-6));
      ASSERT_TRUE(bound.has_value());
      EXPECT_LE(*bound, truth->time * slack);
      EXPECT_FALSE(bound_below(simpler, *bound * (1 - 1e-6)).has_value());
      const auto found = found_below(simpler, kInfinity);
      const auto simplest = brute_force(simpler);
      ASSERT_TRUE(found.has_value() && simplest.has_value());
      EXPECT_PRED2(near, found->time, simplest->time);
      EXPECT_LE(found->time, truth->time * slack);
    }
    if (problem.stages.size() > 1) return;
    const auto layers = stage_layers(problem, 0, 0, static_cast<int>(problem.blocks.size()));
    const StageMenus& menus = problem.stages.front();
    EXPECT_LE(segment_load_bound({.layers = layers,
                                  .transitions = &menus.transitions,
                                  .budget = menus.budget,
                                  .load_limit = kInfinity}),
              truth->time * slack);
  });
}

TEST_P(ExactSearch, TheQuickSolutionIsSoundAndNoFaster) {
  for_each_problem([](const PipelineProblem& problem, const auto& truth) {
    const auto quick = quick_pipeline(problem);
    if (!quick) return;
    ASSERT_TRUE(truth.has_value());
    expect_sound(problem, *quick);
    EXPECT_GE(quick->time, truth->time * (1 - kRelative));
  });
}

TEST_P(ExactSearch, KeepsGivenCuts) {
  for_each_problem([](const PipelineProblem& free, const auto&) {
    PipelineProblem problem = free;
    problem.cuts.assign(problem.stages.size(), problem.multiple);
    problem.cuts.back() = static_cast<int>(problem.blocks.size()) -
                          problem.multiple * static_cast<int>(problem.stages.size() - 1);
    const auto truth = brute_force(problem);
    const auto found = found_below(problem, kInfinity);
    ASSERT_EQ(found.has_value(), truth.has_value());
    if (!truth) return;
    EXPECT_EQ(found->blocks, problem.cuts);
    EXPECT_PRED2(near, found->time, truth->time);
  });
}

INSTANTIATE_TEST_SUITE_P(Families, ExactSearch, testing::ValuesIn(kFamilies),
                         [](const auto& test) { return std::string(test.param.fact); });

// A stage that ramps long carries that much less beyond its ramp, so a long ramp alone rules
// nothing out: 4 + max(7 - 4, 3 - 0) = 7.
TEST(ExactSearchCase, ALongRampCanStandInTheFastestPipeline) {
  PipelineProblem problem;
  problem.blocks = {0, 1};
  StageMenus menus;
  menus.blocks.resize(2);
  menus.blocks[0].options = {{.ramp = 4, .load = 7, .strategy = 0},
                             {.ramp = 0, .load = 100, .strategy = 1}};
  menus.blocks[1].options = {{.ramp = 0, .load = 3}};
  problem.stages = {menus, menus};
  const PipelineResult result = search_cuts(problem, {1, 1}, {.time = 7.5});
  ASSERT_TRUE(result.solution.has_value());
  EXPECT_DOUBLE_EQ(result.solution->time, 7);
}

// Galvatron's price of a lone stage is the larger of two sums, either of which may be the larger
// one.
TEST(ExactSearchCase, ALoneStageTakesTheLargerOfRampAndLoad) {
  PipelineProblem problem;
  problem.blocks = {0, 0};
  StageMenus menus;
  menus.blocks.resize(1);
  menus.blocks[0].options = {
      {.ramp = 6, .load = 1}, {.ramp = 1, .load = 6}, {.ramp = 4, .load = 4}};
  problem.stages = {menus};
  const PipelineResult result = search_pipeline(problem, {.time = kInfinity});
  ASSERT_TRUE(result.solution.has_value());
  EXPECT_DOUBLE_EQ(result.solution->time, 7);  // one of each extreme
  EXPECT_DOUBLE_EQ(brute_force(problem)->time, 7);
  for (const PipelineProblem& simpler : relaxations(problem))
    EXPECT_LE(search_pipeline(simpler, {.time = kInfinity}).solution->time, 7);
}

}  // namespace
}  // namespace braid
