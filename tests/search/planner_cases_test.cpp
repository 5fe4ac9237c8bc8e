// Questions that the planner once answered wrongly: transfers and groups across nodes at the price
// of links inside, bounds above plans that exist, and heuristic rules that cost a large part of the
// time. The times to beat are of plans that `braid check` accepts.

#include <gtest/gtest.h>

#include "planner/cost/make_cost_model.h"
#include "planner/search/search.h"
#include "planner/simulate/price_plan.h"

namespace braid {
namespace {

const std::filesystem::path kData = std::filesystem::path(BRAID_SOURCE_DIR) / "tests/search/data";
const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

Prediction price(const Plan& plan) {
  const auto cost = make_cost_model({.kind = plan.cost, .global_batch = plan.global_batch},
                                    plan.model, plan.cluster, nullptr);
  return price_plan(plan, *cost);
}

// Sixteen blocks in equal stages, every layer under one strategy.
Plan even_plan(const Cluster& cluster, int stages, const Strategy& strategy, int micro_batches,
               std::int64_t batch) {
  Plan plan;
  plan.model = read_model(kData / "llama-16l-model.json");
  plan.cluster = cluster;
  plan.global_batch = batch;
  plan.shape = {.stages = stages, .micro_batches = micro_batches};
  const int layers = plan.model.num_layers(), blocks = (layers - 2) / stages;
  int begin = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int end = stage + 1 == stages ? layers : 1 + (stage + 1) * blocks;
    plan.stages.push_back({.chunks = {{begin, end}}, .strategies = {}});
    plan.stages.back().strategies.assign(static_cast<std::size_t>(end - begin), strategy);
    begin = end;
  }
  verify(plan, "an even plan");
  return plan;
}

// `nodes` nodes of `devices` H100s on NVLink.
Cluster h100(int nodes, int devices, double network_gigabytes) {
  Cluster cluster = read_cluster(kConfigs / "clusters/h100-2x8.json");
  cluster.groups = {cluster.groups.front()};
  cluster.groups.front().count = nodes;
  cluster.groups.front().devices = devices;
  cluster.between.bandwidth = BytesPerSecond(network_gigabytes * 1e9);
  return cluster;
}

constexpr double kSlowerAndSlower[] = {300, 25, 1, 0.1};  // GB/s

// Prices of a plan's part over ever slower networks: each above the one before.
template <class Part>
void expect_grows(const std::string& what, Part part) {
  double before = 0;
  for (const double network : kSlowerAndSlower) {
    const double now = part(network);
    EXPECT_GT(now, before) << what << " over " << network << " GB/s";
    before = now;
  }
}

TEST(AcrossNodes, APipelineWaitsForTheNetwork) {
  // A micro-batch of a sample a device is 2048 tokens of 2048 bf16 values, 8.4 MB.
  const auto time = [](double network) {
    return price(even_plan(h100(2, 8, network), 4, {.dp = 4}, 8, 32)).iteration.value();
  };
  expect_grows("a pipeline of four stages", time);
  constexpr double kTransfer = 8.4e6 / 0.01e9;
  EXPECT_GT(time(0.01), 2 * kTransfer) << "one way and back";
}

TEST(AcrossNodes, ASearchAnswersASlowNetworkWithASlowerPlan) {
  const auto time = [](double network) {
    SearchOptions options;
    options.global_batch = 32;
    options.space.primepar = false;
    return search(read_model(kData / "llama-16l-model.json"), h100(2, 8, network), nullptr, options)
        .plan.value()
        .prediction.iteration.value();
  };
  EXPECT_GT(time(0.01), 2 * time(1));
}

TEST(AcrossNodes, ARingWaitsForTheNetwork) {
  const auto ring = [](double network) {
    return price(even_plan(h100(2, 8, network), 1, {.cp = 16}, 1, 1)).stages.front().terms;
  };
  expect_grows("forward", [&](double network) { return ring(network).forward_context; });
  expect_grows("backward", [&](double network) { return ring(network).backward_context; });
}

TEST(AcrossNodes, AGroupThatStraddlesTwoNodesWaitsForTheNetwork) {
  // Of three groups of four on two nodes of six devices, the second has two on each.
  expect_grows("a tensor group", [](double network) {
    return price(even_plan(h100(2, 6, network), 1, {.tp = 4, .dp = 3}, 1, 3))
        .stages.front()
        .terms.forward_tensor;
  });
}

TEST(AcrossNodes, AReductionOverUnevenPartsOfNodesWaitsForTheNetwork) {
  // Six replicas on a node and a half. Under the analytic model, as under the roofline.
  const auto reduction = [](CostKind kind, double network) {
    Plan plan = even_plan(h100(3, 4, network), 2, {.dp = 6}, 1, 6);
    plan.cost = kind;
    return price(plan).stages.front().times.reduce.value();
  };
  for (const CostKind kind : {CostKind::roofline, CostKind::analytic})
    expect_grows(name_of(kind), [&](double network) { return reduction(kind, network); });
  EXPECT_GT(reduction(CostKind::analytic, 1), 0.2 * reduction(CostKind::roofline, 1));
}

struct Case {
  std::string fact;
  std::string files;  // of model and cluster
  std::int64_t batch;
  double known;  // seconds of a plan that fits
  double most;   // that the search may take: `known`, or what is still missing
  SpaceOptions space = {};
  std::int64_t memory = 0;  // bytes
};

class KnownPlans : public testing::TestWithParam<Case> {};

TEST_P(KnownPlans, AreNotBelowTheBoundAndNotMissed) {
  const Case& c = GetParam();
  SearchOptions options;
  options.global_batch = c.batch;
  options.memory_limit = Bytes(c.memory);
  options.space = c.space;
  options.alternatives = 0;
  const SearchResult result =
      search(read_model(kData / (c.files + "-model.json")),
             read_cluster(kData / (c.files + "-cluster.json")), nullptr, options);
  ASSERT_TRUE(result.plan.has_value());
  EXPECT_LE(result.plan->certificate.lower_bound.value(), c.known * (1 + 1e-4));
  EXPECT_LE(result.plan->prediction.iteration.value(), c.most);
  printf("%s %.6g bound %.6g (known %.6g) %.2fs\n", c.fact.c_str(),
         result.plan->prediction.iteration.value(), result.plan->certificate.lower_bound.value(),
         c.known, result.statistics.seconds);
}

std::vector<Case> known_plans() {
  SpaceOptions no_tensor;
  no_tensor.max_tp = 1;
  SpaceOptions no_primepar;
  no_primepar.primepar = false;
  SpaceOptions one_f_one_b;
  one_f_one_b.schedules = {ScheduleKind::one_f_one_b};
  SpaceOptions four_stages;
  four_stages.max_pp = 4;
  return {
      {"slow_links_in_the_first_node", "links-differ", 32, 0.5579, 0.56, four_stages},
      {"a_step_that_needs_less_than_its_layers", "bound-memory", 6, 0.59489, 0.5949, no_tensor},
      {"memory_of_four", "memory-4", 8, 1, 1, {}, 7371075750},
      {"memory_of_eight", "memory-8", 8, 1, 1, {}, 5947308517},
      {"few_micro_batches", "bound-fill-pipeline", 6, 1.430, 1.430, no_tensor},
      {"few_micro_batches_over_nodes", "bound-fill-pipeline-2", 6, 1, 1, one_f_one_b},
      {"few_micro_batches_of_a_small_model", "bound-fill-pipeline-3", 4, 1, 1, no_primepar},
      {"few_micro_batches_over_a_slow_network", "rule-fill-pipeline", 6, 0.0757, 0.0757,
       no_primepar},
      {"tensor_groups_across_nodes", "rule-tp-in-node", 8, 0.0442, 0.0442, no_primepar},
      {"experts_on_neighbours", "rule-near-tensor-groups", 8, 0.0118, 0.0118, no_primepar},
  };
}

INSTANTIATE_TEST_SUITE_P(Questions, KnownPlans, testing::ValuesIn(known_plans()),
                         [](const auto& test) { return test.param.fact; });

}  // namespace
}  // namespace braid
