#include "planner/explain/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "planner/explain/json.h"
#include "planner/explain/summary.h"
#include "planner/explain/tree.h"
#include "tests/explain/example_plan.h"

namespace braid {
namespace {

using namespace literals;
using testing::HasSubstr;
using testing::Not;

constexpr RenderOptions kPlain{.color = false, .width = 100};

SearchResult example_result() {
  SearchResult result;
  result.plan = example_plan();
  Plan slower = example_plan();
  slower.prediction.iteration = Seconds(12.5);
  result.alternatives.push_back({slower, "2.500 s more for compute"});
  result.statistics = {
      .configurations = 9, .solved = 4, .open = 2, .seconds = 0.25, .cpu_seconds = 0.5};
  return result;
}

TEST(PlanText, HasTheFiguresPeopleAskFor) {
  const std::string text = render_text(example_result(), kPlain);
  for (const char* words :
       {"example · ", "sequence 100", "2 × device in 1 node, 16.0 GiB each", "global batch 4",
        "10.000 s   0.4 samples/s   40 tokens/s", "× 4 / (10.000 s × 2 × 1 TFLOP/s)",
        "at most 25% slower than the best plan of the searched space (bound 8.000 s)",
        "100% slower than peak FLOPs",
        "exact · 2 of 9 configurations may hold a faster plan · 250 ms (500 ms CPU)",
        "2 stages · schedule 1f1b · 2 micro-batches × 2 samples · mesh pp_dp_cp_tp", "12.0 / 16.0",
        "2 × 1.00 = 2.0", "stage 0, the busiest of 2", "perfect would be 0.500",
        "12.500 s  +25.0%  12.0 GiB", "2.500 s more for compute"})
    EXPECT_THAT(text, HasSubstr(words));
}

TEST(PlanText, SharesOfTheTimeStandInOneUnit) {
  const std::string text = render_text(example_plan(), kPlain);
  for (const char* words : {"compute     6.000 s   60.0%", "transfers   1.000 s   10.0%",
                            "bubble      3.000 s   30.0%", "iteration  10.000 s  100.0%"})
    EXPECT_THAT(text, HasSubstr(words));
}

TEST(PlanText, GroupsStagesThatAreAlike) {
  const std::string text = render_text(long_plan(16), kPlain);
  EXPECT_THAT(text, HasSubstr("1-14   1-14     3-30    decoder     × 2  single recompute-full"));
  EXPECT_THAT(text, HasSubstr("  0-14   "));  // two in flight, but for the last stage
}

TEST(PlanText, ElidesTheMiddleOfALongPipeline) {
  Plan plan = long_plan(40);
  for (std::size_t i = 0; i < plan.prediction.stages.size(); ++i)
    plan.prediction.stages[i].peak += Bytes(static_cast<std::int64_t>(i) << 20);
  EXPECT_THAT(render_text(plan, kPlain), HasSubstr("stages 12-27: at most"));
}

TEST(PlanText, HasColorOnlyWhenAsked) {
  EXPECT_THAT(render_text(example_result(), kPlain), Not(HasSubstr("\x1b")));
  EXPECT_THAT(render_text(example_result(), {.color = true, .width = 100}), HasSubstr("\x1b[1m"));
}

TEST(PlanText, ControlCharactersOfAFileStayOut) {
  Plan plan = example_plan();
  plan.model.name = "evil\x1b]0;name";
  EXPECT_THAT(render_text(plan, kPlain), HasSubstr("evil?]0;name"));
}

TEST(PlanText, TellsWhatBindsAndWhatWouldFit) {
  SearchResult result;
  Infeasible why;
  why.constraint = "memory";
  why.stage = 1;
  why.closest = example_plan();
  why.closest.memory_limit = 5_GiB;
  why.breakdown = why.closest.prediction.stages[1];
  why.breakdown.budget = why.available = 5_GiB;
  why.needed = 11_GiB;
  why.enough_memory = 11_GiB;
  why.enough_batch = 2;
  why.enough_devices = 8;
  result.infeasible = why;
  const std::string text = render_text(result, kPlain);
  for (const char* words : {"No plan fits   stage 1 needs 11.0 GiB on a device",
                            "5.0 GiB may be used: 6.0 GiB too much", "┃", "--memory 11GiB",
                            "--global-batch 2", "8 devices"})
    EXPECT_THAT(text, HasSubstr(words));

  const Json json = result_json(result);
  EXPECT_EQ(json.at("status"), "infeasible");
  EXPECT_EQ(json.at("infeasible").at("breakdown").at("optimizer"), (4_GiB).value());
  EXPECT_EQ(json.at("infeasible").at("enough_devices"), 8);
}

// A flag lowers what a device may use and never raises what it has.
TEST(PlanText, MoreThanADeviceHasIsNoFlag) {
  SearchResult result;
  result.infeasible.emplace();
  Infeasible& why = *result.infeasible;
  why.constraint = "memory";
  why.closest = example_plan();  // on devices of 16 GiB
  why.available = 16_GiB;
  why.needed = 20_GiB;
  why.enough_memory = why.needed;
  for (const Bytes limit : {Bytes(), 16_GiB, 8_GiB}) {
    why.closest.memory_limit = limit;
    const std::string text = render_text(result, kPlain);
    EXPECT_THAT(text, HasSubstr("devices of at least 20GiB")) << limit.value();
    EXPECT_THAT(text, Not(HasSubstr("--memory"))) << limit.value();
  }
}

TEST(PlanText, SmallLimitsAreTypedInMebibytes) {
  SearchResult result;
  result.infeasible.emplace();
  result.infeasible->constraint = "memory";
  result.infeasible->closest = example_plan();
  result.infeasible->closest.memory_limit = result.infeasible->available = 1_MiB;
  result.infeasible->needed = Bytes(33'333'333);
  result.infeasible->enough_memory = result.infeasible->needed;
  EXPECT_THAT(render_text(result, kPlain), HasSubstr("--memory 32MiB"));
}

TEST(PlanText, ABrokenRuleIsToldWithWhereAndFix) {
  SearchResult result;
  result.infeasible.emplace();
  result.infeasible->constraint = "strategy";
  result.infeasible->rule = Mistake{.what = "tp·cp=8 does not divide 197 tokens",
                                    .where = "layers 'encoder' under tp8",
                                    .fix = "make tp·cp one of 1"};
  const std::string text = render_text(result, kPlain);
  for (const char* words : {"No plan fits   tp·cp=8 does not divide 197 tokens",
                            "layers 'encoder' under tp8", "make tp·cp one of 1"})
    EXPECT_THAT(text, HasSubstr(words));
  EXPECT_EQ(result_json(result).at("infeasible").at("rule").at("fix"), "make tp·cp one of 1");
}

TEST(PlanText, WhatOnlyAnotherAlgorithmFitsIsSaid) {
  SearchResult result;
  result.infeasible.emplace();
  result.infeasible->constraint = "memory";
  result.infeasible->needed = 4_GiB;
  result.infeasible->available = 5_GiB;
  const std::string text = render_text(result, kPlain);
  EXPECT_THAT(text, HasSubstr("that this algorithm looks at"));
  EXPECT_THAT(text, Not(HasSubstr("too much")));
}

TEST(PlanJson, AlternativesCarryTimeReasonAndShape) {
  const Json json = result_json(example_result());
  const Json& alternative = json.at("alternatives").at(0);
  EXPECT_EQ(alternative.at("iteration_seconds"), 12.5);
  EXPECT_EQ(alternative.at("reason"), "2.500 s more for compute");
  EXPECT_EQ(alternative.at("shape"), shape_line(example_plan()));
  EXPECT_EQ(json.at("search").at("gap"), 0.25);
  EXPECT_EQ(json.at("balance").at("time"), 0.5);
}

TEST(TreeText, CountsWhatEachRulePrunes) {
  const Plan plan = long_plan(4);
  const DecisionTree tree = build_tree(plan.model, plan.cluster, 4, {});
  const std::string text = render_tree(tree, {.width = 160});
  for (const char* words : {"1 stage × 4 devices", "dp4", "zero 0,1,2,3",
                            "recompute none|selective|full", "A rule goes off with --no-rule NAME"})
    EXPECT_THAT(text, HasSubstr(words));
  for (const auto& [rule, count] : tree.pruned_configurations)
    EXPECT_THAT(text, HasSubstr(std::string(info(rule).reason)));
  EXPECT_EQ(tree_json(tree).at("configurations"), tree.configurations.size());
}

TEST(TreeText, TellsWhereALeafComesFromAndWhatItWasSparedFrom) {
  const Plan plan = long_plan(4);
  DecisionTree tree = build_tree(plan.model, plan.cluster, 4, {});
  TreeBranch& branch = tree.branches.front();
  branch.leaves = {{{.dp = 4}, std::nullopt, true, std::nullopt},
                   {{.tp = 4}, std::nullopt, false, std::nullopt},
                   {{.cp = 4}, std::nullopt, true, Rule::ring_needs_tokens},
                   {{.cp = 2, .dp = 2}, Rule::ring_needs_tokens, true, std::nullopt}};
  tree.without_points = "the profile has not timed cp2 dp2";
  const std::string text = render_tree(tree, {.width = 160});
  EXPECT_THAT(text, HasSubstr("dp4  on PrimePar's front\n"));
  EXPECT_THAT(text, HasSubstr("cp4  on PrimePar's front, spared from ring-needs-tokens\n"));
  EXPECT_THAT(text, HasSubstr("tp4\n"));
  EXPECT_THAT(text, HasSubstr("PrimePar's front: the profile has not timed cp2 dp2."));
  const Json json = tree_json(tree);
  EXPECT_EQ(json.at("without_points"), "the profile has not timed cp2 dp2");
  const Json& front = json.at("branches").at(0).at("primepar_front");
  ASSERT_EQ(front.size(), 3U);
  EXPECT_EQ(front[0], Json({{"strategy", "dp4"}, {"kept", true}}));
  EXPECT_EQ(front[1],
            Json({{"strategy", "cp2 dp2"}, {"kept", false}, {"rule", "ring-needs-tokens"}}));
  EXPECT_EQ(front[2], Json({{"strategy", "cp4"}, {"kept", true}, {"rule", "ring-needs-tokens"}}));
}

}  // namespace
}  // namespace braid
