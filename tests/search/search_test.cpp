// What a user may rely on, whatever the search does inside: the same plan every time, never slower
// with more room, never slower than what others find, and an answer where nothing fits.

#include "planner/search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/units.h"

namespace braid {
namespace {

using namespace literals;

constexpr double kRounding = 1e-9;
constexpr Algorithm kOthers[] = {Algorithm::galvatron,  Algorithm::bmw, Algorithm::dp,
                                 Algorithm::zero3,      Algorithm::tp,  Algorithm::pp,
                                 Algorithm::megatron_3d};

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

struct Case {
  std::string fact;
  std::string model;
  std::string cluster;
  std::int64_t batch;
  Bytes memory;  // zero: all there is
  std::int64_t sequence = 0;
  int blocks = 0;  // 0: the model's own
};

Model model_of(const Case& c) {
  const std::filesystem::path file = kConfigs / "models" / (c.model + ".json");
  Json json = read_json(file);
  if (c.blocks > 0) json["num_hidden_layers"] = c.blocks;
  return model_from_json(json, file.string(), c.sequence);
}

SearchResult run(const Case& c, const std::function<void(SearchOptions&)>& change = {}) {
  SearchOptions options;
  options.global_batch = c.batch;
  options.memory_limit = c.memory;
  if (change) change(options);
  return search(model_of(c), read_cluster(kConfigs / "clusters" / (c.cluster + ".json")), nullptr,
                options);
}

double time_of(const SearchResult& result) {
  return result.plan ? result.plan->prediction.iteration.value() : kForever.value();
}

void expect_fits(const Plan& plan) {
  for (const StagePrediction& stage : plan.prediction.stages) EXPECT_LE(stage.peak, stage.budget);
}

const Case kSmall{"small", "gpt2", "a100-80g-8", 16, 4_GiB};

std::vector<Case> cases() {
  return {
      {"a_roomy_node", "gpt2-xl", "a100-80g-8", 16, {}},
      {"a_tight_node", "llama2-7b", "a100-80g-8", 16, 24_GiB, 2048},
      {"slow_links", "llama2-7b", "rtx4090-8", 16, 12_GiB, 1024, 12},
      {"two_kinds_of_blocks", "t5-512-4-32", "v100-32g-8", 4, 8_GiB},
      {"several_nodes", "llama2-7b", "v100-32g-8x4", 16, 16_GiB, 1024, 8},
      {"two_kinds_of_devices", "llama2-7b", "a100-v100-mixed", 16, {}, 1024, 8},
      {"a_tied_table_over_slow_links", "gpt2-xl", "rtx4090-8", 16, 12_GiB},
  };
}

class SearchCases : public testing::TestWithParam<Case> {};

TEST_P(SearchCases, TheExactPlanIsNeverSlowerThanAnother) {
  const SearchResult exact = run(GetParam());
  ASSERT_TRUE(exact.plan.has_value());
  EXPECT_EQ(exact.plan->certificate.algorithm, "exact");
  int found = 0;
  for (const Algorithm algorithm : kOthers) {
    SCOPED_TRACE(name_of(algorithm));
    const SearchResult other = run(GetParam(), [&](auto& o) { o.algorithm = algorithm; });
    if (!other.plan) {
      EXPECT_TRUE(other.infeasible.has_value());
      continue;
    }
    ++found;
    verify(*other.plan, name_of(algorithm));
    expect_fits(*other.plan);
    EXPECT_EQ(other.plan->certificate.algorithm, name_of(algorithm));
    EXPECT_LE(time_of(exact), time_of(other) * (1 + kRounding));
    EXPECT_LE(other.plan->certificate.lower_bound.value(), time_of(exact) * (1 + kRounding));
  }
  EXPECT_GE(found, 3);
}

TEST_P(SearchCases, ThePlanIsLegalFitsAndIsBounded) {
  const SearchResult result = run(GetParam());
  ASSERT_TRUE(result.plan.has_value());
  EXPECT_FALSE(result.infeasible.has_value());
  EXPECT_FALSE(result.statistics.interrupted);
  EXPECT_GT(result.statistics.configurations, 0);
  EXPECT_GT(result.statistics.strategies, 0);
  verify(*result.plan, "plan");
  expect_fits(*result.plan);
  const Certificate& certificate = result.plan->certificate;
  EXPECT_LE(certificate.lower_bound.value(), time_of(result));
  EXPECT_LE(certificate.physics_bound.value(), time_of(result));
  EXPECT_GE(result.gap(), 0);
  // Pipelines with fewer micro-batches than stages are bounded loosely.
  EXPECT_LT(result.gap(), 0.35);
  for (const Alternative& alternative : result.alternatives) {
    verify(alternative.plan, "alternative");
    expect_fits(alternative.plan);
    EXPECT_GE(alternative.plan.prediction.iteration.value(), time_of(result));
    EXPECT_FALSE(alternative.reason.empty());
  }
}

TEST_P(SearchCases, ThreadsAndRepetitionChangeNothing) {
  const auto text = [&](int threads) {
    const SearchResult result = run(GetParam(), [&](auto& o) { o.threads = threads; });
    std::string all = plan_text(result.plan.value());
    for (const Alternative& a : result.alternatives) all += plan_text(a.plan) + a.reason;
    return all;
  };
  const std::string once = text(1);
  EXPECT_EQ(once, text(1));
  EXPECT_EQ(once, text(2));
}

INSTANTIATE_TEST_SUITE_P(Configs, SearchCases, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.fact; });

TEST(Search, MoreMemoryIsNeverSlower) {
  double before = kForever.value();
  int feasible = 0;
  for (const int gigabytes : {2, 4, 6, 8, 10, 12, 16, 24, 40, 80}) {
    Case c = kSmall;
    c.model = "gpt2-xl";
    c.memory = Bytes(std::int64_t{gigabytes} << 30);
    const double time = time_of(run(c));
    EXPECT_LE(time, before * (1 + kRounding)) << gigabytes << " GiB";
    feasible += time < kForever.value() ? 1 : 0;
    before = time;
  }
  EXPECT_GE(feasible, 7);
}

TEST(Search, ARuleSwitchedOffNeverMakesThePlanSlower) {
  const Case c{"", "gpt2", "v100-32g-8x4", 16, 6_GiB};
  const double pruned = time_of(run(c));
  for (const RuleInfo& rule : pruning_rules()) {
    const SearchResult result = run(c, [&](auto& o) { o.space.rules_off = {rule.rule}; });
    EXPECT_LE(time_of(result), pruned * (1 + kRounding)) << rule.name;
  }
}

TEST(Search, SquaresAreInTheTreeAndOfferedWhenAskedFor) {
  const Model model = read_model(kConfigs / "models/llama2-7b.json");
  const Cluster cluster = read_cluster(kConfigs / "clusters/a100-80g-8.json");
  const auto squares = [&](const SpaceOptions& space) {
    int kept = 0, pruned = 0;
    const DecisionTree tree = build_tree(model, cluster, 8, space);
    for (const TreeLeaf& leaf : tree.branches.front().leaves) {
      if (leaf.strategy.tp_kind != TensorKind::spatial_temporal || leaf.strategy.cp > 1) continue;
      EXPECT_TRUE(!leaf.pruned_by || leaf.pruned_by == Rule::unmeasured_squares);
      ++(leaf.pruned_by ? pruned : kept);
    }
    return std::pair(kept, pruned);
  };
  // One square beside a replica, with four levels of ZeRO; two squares; three recomputations each.
  constexpr int kAll = 3 * (4 + 1);
  EXPECT_EQ(squares({}), std::pair(0, kAll));
  SpaceOptions asked;
  asked.rules_off = {Rule::unmeasured_squares};
  EXPECT_EQ(squares(asked), std::pair(kAll, 0));
}

TEST(Search, ARestrictedSpaceIsKept) {
  const SearchResult result = run(kSmall, [](SearchOptions& o) {
    o.space.max_tp = 2;
    o.space.max_pp = 2;
    o.space.max_cp = 1;
    o.space.recompute = false;
    o.space.schedules = {ScheduleKind::one_f_one_b};
  });
  ASSERT_TRUE(result.plan.has_value());
  EXPECT_LE(result.plan->shape.stages, 2);
  EXPECT_EQ(result.plan->shape.schedule, ScheduleKind::one_f_one_b);
  for (const StagePlan& stage : result.plan->stages)
    for (const Strategy& s : stage.strategies) {
      EXPECT_LE(s.tp, 2);
      EXPECT_EQ(s.cp, 1);
      EXPECT_EQ(s.recompute, Recompute::none);
    }
}

TEST(Search, WhatDoesNotFitIsExplainedAndEnoughMemoryIsEnough) {
  Case c{"", "llama2-13b", "a100-80g-8", 8, 6_GiB, 2048};
  const SearchResult result = run(c);
  EXPECT_FALSE(result.plan.has_value());
  ASSERT_TRUE(result.infeasible.has_value());
  const Infeasible& why = *result.infeasible;
  EXPECT_EQ(why.constraint, "memory");
  EXPECT_LT(why.stage, why.closest.shape.stages);
  EXPECT_GT(why.needed, why.available);
  EXPECT_EQ(why.available, c.memory);
  EXPECT_GT(why.breakdown.memory.weights, Bytes());
  ASSERT_TRUE(why.enough_memory.has_value());
  c.memory = *why.enough_memory;
  const SearchResult enough = run(c);
  ASSERT_TRUE(enough.plan.has_value());
  expect_fits(*enough.plan);
  // And hardly more than enough: a tenth less fits nothing.
  c.memory = scaled(*why.enough_memory, 0.9);
  EXPECT_FALSE(run(c).plan.has_value());
}

TEST(Search, EnoughMemoryAndDevicesAreExact) {
  const std::vector<Case> tight = {{"", "llama3-8b", "h100-1x8", 16, 1_GiB, 1024, 4},
                                   {"", "mixtral-8x7b", "h100-1x8", 16, 1_GiB, 1024, 2},
                                   {"", "llama2-7b", "a100-v100-mixed", 16, 1_GiB, 1024, 2}};
  for (Case c : tight) {
    SCOPED_TRACE(c.model);
    const auto any = [](auto& o) { o.enough_gap = 1e6; };
    const SearchResult result = run(c, any);
    ASSERT_TRUE(result.infeasible.has_value());
    ASSERT_TRUE(result.infeasible->enough_memory.has_value());
    const Bytes enough = *result.infeasible->enough_memory;
    c.memory = enough;
    EXPECT_TRUE(run(c, any).plan.has_value());
    c.memory = enough - 1_MiB;
    EXPECT_FALSE(run(c, any).plan.has_value());
  }
}

TEST(Search, EnoughDevicesAreTheFewest) {
  const Model model = model_of({"", "llama2-7b", "a100-80g-8", 32, {}, 1024});
  Cluster cluster = read_cluster(kConfigs / "clusters" / "a100-80g-8.json");
  SearchOptions options;
  options.global_batch = 32;
  options.memory_limit = 7_GiB;
  const SearchResult result = search(model, cluster, nullptr, options);
  ASSERT_TRUE(result.infeasible.has_value());
  EXPECT_EQ(result.infeasible->enough_devices, 24) << "which no doubling of 8 meets";
  options.enough_gap = 1e6;
  cluster.groups.back().count = 3;
  EXPECT_TRUE(search(model, cluster, nullptr, options).plan.has_value());
  cluster.groups.back().count = 2;
  EXPECT_FALSE(search(model, cluster, nullptr, options).plan.has_value());
}

TEST(Search, BalancedCutsAreNotBehindEvenOnes) {
  // Options of equal load differ once an iteration: a stage by itself cannot tell them apart.
  const Case c{"", "vit-huge-32", "titan-rtx-8x8", 64, Bytes(8'000'000'000)};
  const SearchResult even = run(c, [](auto& o) {
    o.space.schedules = {ScheduleKind::one_f_one_b};
    o.space.even_cuts = true;
  });
  const SearchResult balanced = run(c, [](auto& o) {
    o.algorithm = Algorithm::bmw;
    o.prove = false;
  });
  EXPECT_LE(time_of(balanced), time_of(even) * (1 + kRounding));
}

TEST(Search, ABaselineThatDividesNothingNamesTheRuleItBreaks) {
  // 14 × 14 patches and a class token: 197 tokens, a prime.
  const Case c{"", "vit-huge-32", "titan-rtx-1x8", 64, {}, 0, 4};
  const SearchResult result = run(c, [](auto& o) { o.algorithm = Algorithm::tp; });
  EXPECT_FALSE(result.plan.has_value());
  ASSERT_TRUE(result.infeasible.has_value());
  const Infeasible& why = *result.infeasible;
  EXPECT_EQ(why.constraint, "strategy");
  ASSERT_TRUE(why.rule.has_value());
  EXPECT_EQ(why.rule->what, "tp·cp=8 does not divide 197 tokens");
  EXPECT_EQ(why.rule->where, "layers 'encoder' under tp8");
  EXPECT_NE(why.rule->fix.find("--algorithm exact"), std::string::npos);
  EXPECT_EQ(why.closest.model.num_layers(), 6) << "the task is told where there is no plan";
  EXPECT_FALSE(why.enough_memory || why.enough_batch || why.enough_devices);
}

TEST(Search, ABatchThatReplicasDoNotDivideIsNoBrokenRule) {
  const Case c{"", "vit-huge-32", "titan-rtx-1x8", 4, {}, 0, 4};
  const SearchResult result = run(c, [](auto& o) { o.algorithm = Algorithm::dp; });
  ASSERT_TRUE(result.infeasible.has_value());
  EXPECT_EQ(result.infeasible->constraint, "batch");
  EXPECT_FALSE(result.infeasible->rule.has_value());
  EXPECT_THAT(result.infeasible->reason,
              testing::HasSubstr("a batch of 4 cannot be divided over 8 devices"));
  EXPECT_EQ(result.infeasible->enough_batch, 8);
  EXPECT_EQ(result.infeasible->enough_devices, 4);
}

TEST(Search, WithoutAProofABaselineFindsTheSamePlanAndNoBound) {
  const auto zero = [](auto& o) { o.algorithm = Algorithm::zero3; };
  const SearchResult proven = run(kSmall, zero);
  const SearchResult plain = run(kSmall, [&](auto& o) {
    zero(o);
    o.prove = false;
  });
  EXPECT_EQ(time_of(plain), time_of(proven));
  EXPECT_GT(proven.plan->certificate.lower_bound, Seconds(0));
  EXPECT_EQ(plain.plan->certificate.lower_bound, Seconds(0));
}

TEST(Search, ABaselineThatDoesNotFitIsExplainedByItsOwnPlans) {
  Case c{"", "llama2-7b", "a100-80g-8", 64, 40_GiB};
  const auto plainly = [](auto& o) { o.algorithm = Algorithm::dp; };
  const SearchResult result = run(c, plainly);
  EXPECT_FALSE(result.plan.has_value());
  ASSERT_TRUE(result.infeasible.has_value());
  const Infeasible& why = *result.infeasible;
  EXPECT_GT(why.needed, why.available);
  for (const Strategy& s : why.closest.stages.at(0).strategies) EXPECT_EQ(s, Strategy{.dp = 8});
  EXPECT_FALSE(why.enough_batch.has_value()) << "states alone do not fit";
  EXPECT_FALSE(why.enough_devices.has_value()) << "replicas share nothing";
  ASSERT_TRUE(why.enough_memory.has_value());
  c.memory = *why.enough_memory;
  // Nearly twice what a device has.
  EXPECT_GT(c.memory, 80_GiB);
}

TEST(Search, AStoppedSearchSaysSo) {
  const std::atomic<bool> stop = true;
  for (const Algorithm algorithm : {Algorithm::exact, Algorithm::megatron_3d}) {
    const SearchResult result = run(kSmall, [&](SearchOptions& o) {
      o.stop = &stop;
      o.algorithm = algorithm;
    });
    EXPECT_TRUE(result.statistics.interrupted) << name_of(algorithm);
    EXPECT_FALSE(result.infeasible.has_value()) << "nothing was proven";
    if (!result.plan) continue;
    verify(*result.plan, "the best so far");
    expect_fits(*result.plan);
  }
}

TEST(Search, AStopOnTheWayKeepsTheBestSoFar) {
  std::atomic<bool> stop = false;
  int reports = 0;
  const SearchResult result = run(kSmall, [&](SearchOptions& o) {
    o.stop = &stop;
    o.progress = [&](const SearchProgress& progress) {
      ++reports;
      if (progress.best) stop = true;
    };
  });
  EXPECT_GT(reports, 0);
  ASSERT_TRUE(result.plan.has_value());
  EXPECT_EQ(result.statistics.ending, Ending::signal);
  const SearchResult whole = run(kSmall);
  EXPECT_EQ(whole.statistics.ending, Ending::complete);
  EXPECT_LE(time_of(whole), time_of(result) * (1 + kRounding));
  // What was proven by then holds.
  EXPECT_LE(result.plan->certificate.lower_bound.value(), time_of(whole) * (1 + kRounding));
}

// A search of minutes, where the phases before and within a configuration take seconds.
const Case kLong{"", "megatron-530b", "h100-128x8", 256, {}};

TEST(Search, ATimeLimitEndsItWhereverItIs) {
  for (const double limit : {0.01, 0.5, 2.0}) {
    for (const Algorithm algorithm : {Algorithm::exact, Algorithm::bmw, Algorithm::galvatron}) {
      SCOPED_TRACE(name_of(algorithm) + ", seconds: " + std::to_string(limit));
      const SearchResult result = run(kLong, [&](auto& o) {
        o.time_limit = limit;
        o.algorithm = algorithm;
      });
      EXPECT_EQ(result.statistics.ending, Ending::limit);
      EXPECT_TRUE(result.statistics.interrupted);
      EXPECT_LT(result.statistics.seconds, limit + 1);
      EXPECT_FALSE(result.infeasible.has_value()) << "nothing was proven";
      if (!result.plan) continue;
      verify(*result.plan, "the best so far");
      expect_fits(*result.plan);
      EXPECT_LE(result.plan->certificate.lower_bound.value(), time_of(result));
    }
  }
}

TEST(Search, WhatIsCutShortIsNeverBehindABaseline) {
  // Each of the baselines took milliseconds; the exact search by itself had found a slower plan.
  const Case c{"", "swin-huge-48", "h100-128x8", 256, {}};
  const SearchResult cut = run(c, [](auto& o) { o.time_limit = 3; });
  ASSERT_TRUE(cut.plan.has_value());
  for (const Algorithm algorithm : {Algorithm::pp, Algorithm::megatron_3d}) {
    const SearchResult other = run(c, [&](auto& o) {
      o.algorithm = algorithm;
      o.prove = false;
    });
    EXPECT_LE(time_of(cut), time_of(other) * (1 + kRounding)) << name_of(algorithm);
  }
}

TEST(Search, AGapThatIsGoodEnoughEndsIt) {
  const Case c{"", "llama2-7b", "v100-32g-8x4", 16, 16_GiB, 1024, 8};
  const SearchResult whole = run(c);
  ASSERT_GT(whole.gap(), 0.001);
  ASSERT_LT(whole.gap(), 0.1);
  const double enough = 0.3;
  const SearchResult quick = run(c, [&](auto& o) { o.enough_gap = enough; });
  ASSERT_TRUE(quick.plan.has_value());
  EXPECT_EQ(quick.statistics.ending, Ending::gap);
  EXPECT_FALSE(quick.statistics.interrupted);
  EXPECT_LE(quick.gap(), enough * (1 + kRounding));
  EXPECT_EQ(run(c, [&](auto& o) { o.enough_gap = whole.gap() / 2; }).statistics.ending,
            Ending::complete)
      << "a gap out of reach ends nothing";
}

TEST(Search, ProgressNeverGoesBack) {
  for (const Algorithm algorithm : {Algorithm::exact, Algorithm::megatron_3d}) {
    std::optional<SearchProgress> last;
    std::set<std::string> phases;
    run({"", "llama2-7b", "v100-32g-8x4", 16, 16_GiB, 1024, 8}, [&](SearchOptions& o) {
      o.algorithm = algorithm;
      o.progress = [&](const SearchProgress& now) {
        phases.emplace(now.phase);
        if (last) {
          EXPECT_GE(now.seconds, last->seconds);
          EXPECT_LE(now.best.value_or(kForever), last->best.value_or(kForever));
          EXPECT_LE(now.gap.value_or(1e9), last->gap.value_or(1e9));
        }
        last = now;
      };
    });
    ASSERT_TRUE(last.has_value());
    EXPECT_TRUE(last->best.has_value());
    EXPECT_GE(phases.size(), 3) << "of " << name_of(algorithm);
  }
}

TEST(Search, MixedDevicesEachGetAStageTheyCanHold) {
  const SearchResult result = run({"", "llama2-7b", "a100-v100-mixed", 16, {}, 1024, 8},
                                  [](auto& o) { o.alternatives = 0; });
  ASSERT_TRUE(result.plan.has_value());
  expect_fits(*result.plan);
  // 1.6 GB/s between the nodes: replicas across them would cost more than a boundary between
  // stages.
  ASSERT_GE(result.plan->shape.stages, 2);
  const auto& stages = result.plan->prediction.stages;
  const std::vector<DeviceType>& types = result.plan->cluster.device_types;
  EXPECT_EQ(stages.front().budget, types.front().memory);
  EXPECT_EQ(stages.back().budget, types.back().memory);
  EXPECT_LT(stages.back().budget, stages.front().budget);
}

TEST(Search, ANonsensicalBatchIsTheUsersMistake) {
  Case c = kSmall;
  for (const std::int64_t batch : {std::int64_t{0}, std::int64_t{-4}, std::int64_t{1} << 40}) {
    c.batch = batch;
    EXPECT_THROW(run(c), Error) << batch;
  }
}

}  // namespace
}  // namespace braid
