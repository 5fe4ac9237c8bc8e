// Questions that the planner once answered wrongly: transfers and groups across nodes at the price
// of links inside, bounds above plans that exist, and heuristic rules that cost a large part of the
// time. Each question comes with a plan that was known to be faster, or faster than the bound.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

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

// Consecutive layers under one strategy.
struct Run {
  int layers;
  Strategy strategy;
};

struct Case {
  std::string fact;
  std::filesystem::path model, cluster;
  int devices = 0;  // of the cluster; 0: all
  std::int64_t batch = 1;
  std::int64_t memory = 0;  // bytes; 0: all there is
  SpaceOptions space = {};
  // A plan that is known to fit.
  PipelineShape shape;
  MeshOrder order = MeshOrder::pp_dp_cp_tp;
  std::vector<int> cuts;  // layers of each virtual stage
  std::vector<Run> runs;
  double slower = 1;  // that the search's plan may be: 1 where it finds one as fast
};

Plan known_plan(const Case& c) {
  Plan plan;
  plan.model = read_model(c.model);
  plan.cluster = read_cluster(c.cluster);
  if (c.devices > 0) plan.cluster = shrink(plan.cluster, c.devices);
  plan.global_batch = c.batch;
  plan.memory_limit = Bytes(c.memory);
  plan.shape = c.shape;
  plan.mesh_order = c.order;
  std::vector<Strategy> strategies;
  for (const Run& run : c.runs)
    strategies.insert(strategies.end(), static_cast<std::size_t>(run.layers), run.strategy);
  plan.stages.resize(static_cast<std::size_t>(c.shape.stages));
  int begin = 0;
  for (std::size_t v = 0; v < c.cuts.size(); ++v) {
    plan.stages[v % plan.stages.size()].chunks.push_back({begin, begin + c.cuts[v]});
    begin += c.cuts[v];
  }
  for (StagePlan& stage : plan.stages)
    for (const int layer : layers_of(stage))
      stage.strategies.push_back(strategies.at(static_cast<std::size_t>(layer)));
  verify(plan, c.fact);
  return plan;
}

class KnownPlans : public testing::TestWithParam<Case> {};

TEST_P(KnownPlans, AreNotBelowTheBoundAndNotMissed) {
  const Case& c = GetParam();
  Plan known = known_plan(c);
  known.prediction = price(known);
  for (const StagePrediction& stage : known.prediction.stages) ASSERT_LE(stage.peak, stage.budget);
  const double time = known.prediction.iteration.value();

  SearchOptions options;
  options.global_batch = c.batch;
  options.memory_limit = Bytes(c.memory);
  options.space = c.space;
  options.alternatives = 0;
  const SearchResult result = search(known.model, known.cluster, nullptr, options);
  ASSERT_TRUE(result.plan.has_value());
  constexpr double kRounding = 1e-9;
  EXPECT_LE(result.plan->certificate.lower_bound.value(), time * (1 + kRounding));
  EXPECT_LE(result.plan->prediction.iteration.value(), time * c.slower * (1 + kRounding));
}

std::vector<Case> known_plans() {
  const auto model = [](const std::string& name) { return kData / (name + "-model.json"); };
  const auto cluster = [](const std::string& name) { return kData / (name + "-cluster.json"); };
  SpaceOptions no_tensor, no_primepar, one_f_one_b, four_stages;
  no_tensor.max_tp = 1;
  no_primepar.primepar = false;
  one_f_one_b.schedules = {ScheduleKind::one_f_one_b};
  four_stages.max_pp = 4;
  constexpr auto kShards = Zero::optimizer;
  constexpr auto kGathers = Zero::parameters;
  constexpr Strategy kPair{.dp = 2, .zero = kShards};
  constexpr Strategy kHybrid{.tp = 2, .dp = 2, .zero = kShards};
  constexpr Strategy kUlysses{.tp = 2, .tp_kind = TensorKind::ulysses, .dp = 2, .zero = kShards};
  constexpr Strategy kRing{.tp = 2, .cp = 2, .zero = kGathers};
  constexpr Strategy kTensor{.tp = 2};
  constexpr Strategy kSelective{.tp = 2, .recompute = Recompute::selective};
  return {
      // The bound of four nodes was that of the first one, on its slow links.
      {.fact = "slow_links_in_the_first_node",
       .model = model("links-differ"),
       .cluster = cluster("links-differ"),
       .batch = 32,
       .space = four_stages,
       .shape = {ScheduleKind::zero_bubble, 4, 16},
       .cuts = {2, 8, 8, 8},
       .runs = {{1, {.tp = 4}},
                {1, kHybrid},
                {2, kUlysses},
                {2, kHybrid},
                {1, kUlysses},
                {1, kHybrid},
                {2, kUlysses},
                {15, kHybrid},
                {1, kUlysses}}},
      // Plans whose layers add up to more than the limit, and whose steps fit.
      {.fact = "a_step_that_needs_less_than_its_layers",
       .model = model("bound-memory"),
       .cluster = cluster("bound-memory"),
       .batch = 6,
       .space = no_tensor,
       .shape = {ScheduleKind::one_f_one_b, 1, 1},
       .cuts = {6},
       .runs = {{1, {.cp = 2, .dp = 2, .zero = kShards}},
                {4, {.cp = 2, .dp = 2, .zero = kGathers}},
                {1, {.cp = 2, .dp = 2}}}},
      {.fact = "a_step_of_four_devices_that_fits",
       .model = model("memory-4"),
       .cluster = cluster("memory-4"),
       .batch = 8,
       .memory = 7371075750,
       .shape = {ScheduleKind::interleaved, 2, 8, 6},
       .cuts = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},
       .runs = {{13, kTensor}, {1, {.tp = 2, .tp_kind = TensorKind::ulysses, .zero = kShards}}}},
      {.fact = "a_step_of_eight_devices_that_fits",
       .model = model("memory-8"),
       .cluster = cluster("memory-8"),
       .batch = 8,
       .memory = 5947308517,
       .shape = {ScheduleKind::interleaved, 4, 8, 4},
       .cuts = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},
       .runs = {{1, kTensor},
                {1, kSelective},
                {3, kTensor},
                {1, kSelective},
                {3, kTensor},
                {1, kSelective},
                {3, kTensor},
                {1, {.tp = 2, .recompute = Recompute::full}},
                {4, kTensor}},
       .slower = 1.04},
      // Fewer micro-batches than stages.
      {.fact = "few_micro_batches_over_slow_links",
       .model = model("bound-fill-pipeline"),
       .cluster = cluster("bound-fill-pipeline"),
       .batch = 6,
       .space = no_tensor,
       .shape = {ScheduleKind::zero_bubble, 4, 3},
       .cuts = {2, 5, 5, 2},
       .runs = {{14, kPair}}},
      {.fact = "few_micro_batches_over_two_nodes",
       .model = model("bound-fill-pipeline-2"),
       .cluster = cluster("bound-fill-pipeline-2"),
       .batch = 6,
       .space = one_f_one_b,
       .shape = {ScheduleKind::one_f_one_b, 6, 3},
       .cuts = {2, 1, 1, 2, 2, 2},
       .runs = {{1, {.tp = 2, .tp_kind = TensorKind::ulysses, .zero = kShards}},
                {1, kTensor},
                {3, kPair},
                {1, {.dp = 2}},
                {1, kPair},
                {1, {.dp = 2}},
                {1, kPair},
                {1, {.dp = 2}}}},
      {.fact = "few_micro_batches_of_a_small_model",
       .model = model("bound-fill-pipeline-3"),
       .cluster = cluster("bound-fill-pipeline-3"),
       .batch = 4,
       .space = no_primepar,
       .shape = {ScheduleKind::zero_bubble, 3, 2},
       .cuts = {2, 6, 2},
       .runs = {{1, kTensor}, {7, kPair}, {2, {.dp = 2}}}},
      {.fact = "few_micro_batches_over_a_slow_network",
       .model = model("rule-fill-pipeline"),
       .cluster = cluster("rule-fill-pipeline"),
       .batch = 6,
       .space = no_primepar,
       .shape = {ScheduleKind::zero_bubble, 12, 6},
       .cuts = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},
       .runs = {{14, {}}}},
      {.fact = "few_micro_batches_of_a_published_model",
       .model = kConfigs / "models/llama2-7b.json",
       .cluster = kConfigs / "clusters/v100-32g-8x4.json",
       .devices = 16,
       .batch = 2,
       .shape = {ScheduleKind::zero_bubble, 4, 2},
       .cuts = {9, 8, 8, 9},
       .runs = {{9, {.tp = 4}}, {24, kRing}, {1, {.tp = 2, .cp = 2, .zero = kShards}}}},
      // Tensor groups across nodes, and replicas on neighbours: experts lie on the data axis.
      {.fact = "tensor_groups_across_nodes",
       .model = model("rule-tp-in-node"),
       .cluster = cluster("rule-tp-in-node"),
       .batch = 8,
       .space = no_primepar,
       .shape = {ScheduleKind::one_f_one_b, 1, 1},
       .cuts = {4},
       .runs = {{1, {.tp = 4}}, {2, {.dp = 4, .zero = kShards}}, {1, {.dp = 4}}}},
      {.fact = "experts_on_neighbours",
       .model = model("rule-near-tensor-groups"),
       .cluster = cluster("rule-near-tensor-groups"),
       .batch = 8,
       .space = no_primepar,
       .shape = {ScheduleKind::zero_bubble, 2, 2},
       .order = MeshOrder::pp_tp_cp_dp,
       .cuts = {2, 2},
       .runs = {{1, {.tp = 4, .dp = 2, .zero = kShards}},
                {1, {.tp = 2, .dp = 4, .zero = kShards, .ep = 4}},
                {1, {.tp = 2, .dp = 4, .zero = kGathers, .ep = 4}},
                {1, {.tp = 4, .dp = 2, .zero = kShards}}}},
  };
}

INSTANTIATE_TEST_SUITE_P(Questions, KnownPlans, testing::ValuesIn(known_plans()),
                         [](const auto& test) { return test.param.fact; });

}  // namespace
}  // namespace braid
