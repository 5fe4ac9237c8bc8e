// The whole optimiser on models and clusters of configs/.

#include "planner/primepar/optimize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "planner/primepar/schemes.h"
#include "tests/primepar/machines.h"
#include "tests/support/files.h"

namespace braid {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

PrimeparTask task_of(const std::string& model, std::int64_t batch = 8) {
  const std::filesystem::path file = kConfigs / "models" / (model + ".json");
  PrimeparTask task = primepar_task(read_model(file, 2048), file.string());
  task.batch = batch;
  task.precision = Precision::fp32;
  return task;
}

Cluster v100s(int devices) {
  return shrink(read_cluster(kConfigs / "clusters" / "v100-32g-8x4.json"), devices);
}

std::map<std::string, std::string> partitions_of(const PrimeparSpace& space,
                                                 const PrimeparPlan& plan) {
  std::map<std::string, std::string> texts;
  for (std::size_t i = 0; i < plan.partitions.size(); ++i) {
    const Operator& op = space.graph().operators[i];
    texts[op.name] = text_of(plan.partitions[i], letters_of(op.kind));
  }
  return texts;
}

TEST(Optimize, FindsThePapersPlanForTheMlpOfOpt175bOnEightV100s) {
  const PrimeparMachine machine(v100s(8), Precision::fp32);
  const PrimeparSpace space(task_of("opt-175b"), machine, PrimeparVariant::paper);
  auto plan = partitions_of(space, optimize(space, 0).plan);
  EXPECT_EQ(plan["fc1"], "{K, P2×2}");
  EXPECT_EQ(plan["act"], "{D, S, D}");
  EXPECT_EQ(plan["fc2"], "{N, P2×2}");
}

TEST(Optimize, ThePairNeedsNoRedistributionOnFourDevices) {
  for (const char* model : {"opt-6.7b", "llama2-70b", "bloom-176b"}) {
    const PrimeparMachine machine(v100s(4), Precision::fp32);
    const PrimeparSpace space(task_of(model), machine, PrimeparVariant::plus_minus);
    const PrimeparPlan plan = optimize(space, 0).plan;
    EXPECT_EQ(plan.totals.redistribute, 0) << model;
    EXPECT_EQ(plan.totals.exposed(), plan.totals.all_reduce + plan.totals.gradient_reduce);
    auto texts = partitions_of(space, plan);
    EXPECT_EQ(texts["qkv"], "{P⁺2×2/B}") << model;
    EXPECT_EQ(texts["proj"], "{P⁻2×2/B}") << model;
  }
}

// Its space holds every Megatron plan, so it cannot lose to one.
TEST(Optimize, ThePairIsNeverBehindMegatron) {
  for (const char* model : {"opt-6.7b", "opt-175b", "llama2-70b", "bloom-176b"})
    for (const int devices : {2, 4, 8, 16}) {
      const PrimeparMachine machine(v100s(devices), Precision::fp32);
      const PrimeparTask task = task_of(model);
      const PrimeparSpace space(task, machine, PrimeparVariant::plus_minus);
      const double ours = optimize(space, 0).plan.totals.time();
      const std::vector<SchemePlan> megatron = scheme_plans(Scheme::megatron, task, machine);
      ASSERT_NE(fastest(megatron), nullptr);
      EXPECT_LE(ours, fastest(megatron)->totals.time() * (1 + 1e-6)) << model << " on " << devices;
    }
}

// The state with this text.
std::size_t state_named(const PrimeparSpace& space, std::size_t op, const std::string& text) {
  const std::vector<Partition>& states = space.states(op);
  const Letters letters = letters_of(space.graph().operators[op].kind);
  const auto found =
      std::ranges::find_if(states, [&](const Partition& p) { return text_of(p, letters) == text; });
  if (found != states.end()) return static_cast<std::size_t>(found - states.begin());
  ADD_FAILURE() << "there is no state " << text;
  return 0;
}

// Megatron is one of the pair's assignments, and costs there what its closed form says.
TEST(Space, HoldsMegatronAtItsOwnPrice) {
  const PrimeparMachine machine(v100s(8), Precision::fp32);
  const PrimeparTask task = task_of("llama2-70b");
  const PrimeparSpace space(task, machine, PrimeparVariant::plus_minus);
  const char* const kPlan[] = {"{B, R, R}", "{B, R, R}", "{B, K, K}", "{B, H, H}", "{B, H, H}",
                               "{B, H, H}", "{B, N, N}", "{B, R, R}", "{B, R, R}", "{B, K, K}",
                               "{B, D, D}", "{B, N, N}", "{B, R, R}"};
  std::vector<std::size_t> states;
  LayerTotals sum;
  for (std::size_t op = 0; op < std::size(kPlan); ++op) {
    states.push_back(state_named(space, op, kPlan[op]));
    if (op == 0) continue;
    const OperatorCost& cost = space.cost(op, states.back());
    sum.compute += cost.compute;
    sum.all_reduce += cost.all_reduce;
    sum.gradient_reduce += cost.gradient_reduce;
    sum.states += cost.states;
    sum.stash += cost.stash;
    sum.workspace = std::max(sum.workspace, cost.workspace);
  }
  for (std::size_t e = 0; e < space.graph().edges.size(); ++e)
    sum.redistribute +=
        space.redistribute(e, states[static_cast<std::size_t>(space.graph().edges[e].from)],
                           states[static_cast<std::size_t>(space.graph().edges[e].to)]);
  EXPECT_EQ(sum.redistribute, 0);
  const auto plans = scheme_plans(Scheme::megatron, task, machine);
  const auto megatron = std::ranges::find(plans, 2, &SchemePlan::data);
  ASSERT_NE(megatron, plans.end());
  const LayerTotals& closed = megatron->totals;
  EXPECT_NEAR(sum.compute, closed.compute, 1e-9);
  EXPECT_NEAR(sum.all_reduce, closed.all_reduce, 1e-9);
  EXPECT_NEAR(sum.gradient_reduce, closed.gradient_reduce, 1e-9);
  EXPECT_DOUBLE_EQ(sum.states, closed.states);
  EXPECT_DOUBLE_EQ(sum.stash, closed.stash);
  EXPECT_DOUBLE_EQ(sum.workspace, closed.workspace);
}

TEST(Optimize, ThePairCopiesTheResidualStreamAcrossNodesAndSkewsItInside) {
  const PrimeparMachine machine(v100s(8), Precision::fp32);
  const PrimeparSpace space(task_of("opt-175b"), machine, PrimeparVariant::plus_minus);
  auto plan = partitions_of(space, optimize(space, 0).plan);
  EXPECT_EQ(plan["add"], "{R, skew2×2/B}");
  EXPECT_EQ(plan["fc1"], "{K, P⁺2×2/B}");
  EXPECT_EQ(plan["fc2"], "{N, P⁻2×2/B}");
}

// Every assignment of a layer on two devices: some nine million.
TEST(Optimize, EqualsBruteForceOnTwoDevices) {
  const PrimeparMachine machine(round_cluster(1, 2), Precision::fp32, kAllOfThePeak);
  const PrimeparSpace space(round_task(), machine, PrimeparVariant::paper);
  const PricedProblem priced = space.priced(1e-12);
  const SolvedAssignment solved(priced.problem);
  const Assignment best = brute_force(priced.problem);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < solved.link().rows(); ++i)
    for (std::size_t j = 0; j < solved.link().columns(); ++j)
      least = std::min<std::int64_t>(least, priced.problem.nodes[0][i] + solved.link()(i, j));
  EXPECT_EQ(least, cost_of(priced.problem, best));
}

// A few states of each operator on eight devices, real costs, both ends fixed.
TEST(Optimize, EqualsBruteForceOnSampledStates) {
  const PrimeparMachine machine(v100s(8), Precision::fp32);
  const PrimeparSpace space(task_of("llama2-70b"), machine, PrimeparVariant::plus_minus);
  const PricedProblem priced = space.priced(0);
  std::mt19937 random(6);
  std::vector<std::vector<std::size_t>> kept;
  AssignmentProblem sampled;
  for (const std::vector<Ticks>& costs : priced.problem.nodes) {
    std::uniform_int_distribution<std::size_t> any(0, costs.size() - 1);
    kept.push_back({any(random), any(random)});
    sampled.nodes.push_back({costs[kept.back()[0]], costs[kept.back()[1]]});
  }
  std::vector<Table32> tables;
  tables.reserve(priced.problem.edges.size());
  for (const AssignmentEdge& edge : priced.problem.edges) {
    Table32 table(2, 2);
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 2; ++j)
        table(i, j) = (*edge.cost)(kept[static_cast<std::size_t>(edge.from)][i],
                                   kept[static_cast<std::size_t>(edge.to)][j]);
    tables.push_back(std::move(table));
    sampled.edges.push_back({edge.from, edge.to, &tables.back()});
  }
  const SolvedAssignment solved(sampled);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 2; ++j)
      EXPECT_EQ(cost_of(sampled, solved.between(i, j)),
                cost_of(sampled, brute_force(sampled, i, j)));
}

// Tables of a shared layout give what the two layouts give by themselves.
TEST(Space, EdgesCostWhatTheirLayoutsMove) {
  const PrimeparMachine machine(v100s(16), Precision::fp32);
  const PrimeparTask task = task_of("llama2-70b");
  const PrimeparSpace space(task, machine, PrimeparVariant::plus_minus);
  std::mt19937 random(7);
  for (std::size_t e = 0; e < space.graph().edges.size(); ++e)
    for (int trial = 0; trial < 20; ++trial) {
      const GraphEdge& edge = space.graph().edges[e];
      const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
      const std::size_t i = random() % space.states(from).size();
      const std::size_t j = random() % space.states(to).size();
      double expected = 0;
      for (const Flow& flow : edge.flows)
        expected +=
            flow.elements * 4 *
            seconds_a_byte(
                port_layouts(space.graph().operators[from], flow.from, space.states(from)[i], task),
                port_layouts(space.graph().operators[to], flow.to, space.states(to)[j], task),
                machine);
      EXPECT_NEAR(space.redistribute(e, i, j), expected, 1e-6 * expected) << "edge " << e;
    }
}

TEST(Optimize, AStackOfEqualLayersIsNoSlowerThanOnePlanInEach) {
  const PrimeparMachine machine(v100s(8), Precision::fp32);
  const PrimeparTask task = task_of("opt-175b");
  const PrimeparSpace space(task, machine, PrimeparVariant::paper);
  const PrimeparResult result = optimize(space, 0);
  EXPECT_LE(result.stack, task.layers * result.objective * (1 + 1e-9));
  EXPECT_GE(result.stack, 0.9 * task.layers * result.objective);
  EXPECT_NEAR(result.objective, result.plan.totals.time(), 1e-6 * result.objective);
}

TEST(Pareto, PointsOfABoundaryDoNotBeatOneAnotherAndHoldTheFastest) {
  const PrimeparMachine machine(v100s(8), Precision::fp32);
  const PrimeparSpace space(task_of("opt-6.7b"), machine, PrimeparVariant::plus_minus);
  const PrimeparPlan fastest_plan = optimize(space, 0).plan;
  const std::vector<double> alphas = alpha_sweep(fastest_plan.totals);
  ASSERT_EQ(alphas.size(), 16U);
  EXPECT_EQ(alphas.front(), 0);
  EXPECT_TRUE(std::ranges::is_sorted(alphas));
  const std::vector<ParetoPoint> points = primepar_pareto(space, alphas);
  bool holds_fastest = false;
  std::map<Partition, std::vector<LayerTotals>> by_boundary;
  for (const ParetoPoint& p : points) {
    EXPECT_EQ(p.plan.partitions.front(), p.plan.partitions.back()) << "it can follow itself";
    by_boundary[p.plan.boundary()].push_back(p.plan.totals);
    holds_fastest = holds_fastest || p.plan.partitions == fastest_plan.partitions;
  }
  EXPECT_TRUE(holds_fastest);
  EXPECT_EQ(by_boundary.size(), space.states(0).size());
  for (const auto& [boundary, all] : by_boundary)
    for (const LayerTotals& a : all)
      for (const LayerTotals& b : all) {
        const bool beats = a.time() < b.time() && a.states <= b.states && a.stash <= b.stash &&
                           a.workspace <= b.workspace;
        EXPECT_FALSE(beats) << text_of(boundary, Letters::elementwise);
      }
  const auto memory = [](const ParetoPoint& p) {
    return p.plan.totals.states + p.plan.totals.stash;
  };
  const auto [least, most] = std::ranges::minmax_element(points, {}, memory);
  EXPECT_LT(memory(*least), memory(*most)) << "a price on memory buys less of it";
}

TEST(Pareto, LessOfAnyKindOfMemoryIsWorthKeeping) {
  const auto point = [](double compute, double states, double stash, double workspace) {
    ParetoPoint p;
    p.plan.totals.compute = compute;
    p.plan.totals.states = states;
    p.plan.totals.stash = stash;
    p.plan.totals.workspace = workspace;
    return p;
  };
  const std::vector<ParetoPoint> left =
      best_of_boundaries({point(5, 9, 9, 5), point(1, 9, 9, 9), point(2, 9, 9, 8),
                          point(3, 9, 8, 9), point(4, 8, 9, 9), point(6, 9, 9, 8)});
  std::vector<double> times;
  times.reserve(left.size());
  for (const ParetoPoint& p : left) times.push_back(p.plan.totals.time());
  EXPECT_EQ(times, std::vector<double>({1, 2, 3, 4, 5}));
}

// Elements moved and bytes held by a GPT layer of h → 3h, h → h, h → 4h and 4h → h.
TEST(Optimize, ThePairsLayerIsTheClosedForm) {
  const PrimeparMachine machine(round_cluster(1, 4), Precision::fp32, kAllOfThePeak);
  const PrimeparSpace space(round_task(), machine, PrimeparVariant::plus_minus);
  const PrimeparPlan plan = optimize(space, 0).plan;
  auto texts = partitions_of(space, plan);
  ASSERT_EQ(texts["fc1"], "{P⁺2×2/B}");
  ASSERT_EQ(texts["add"], "{skew2×2/B}");
  const double t = 8192, h = 1024;
  EXPECT_NEAR(plan.totals.ring_hidden, (32 * t * h + 24 * h * h) / 4 * 4 / 100e9, 1e-12);
  EXPECT_EQ(plan.totals.ring_exposed, 0);
  EXPECT_EQ(plan.totals.redistribute, 0);
  EXPECT_DOUBLE_EQ(plan.totals.stash, 16 * t * h / 4 * 4);
  EXPECT_DOUBLE_EQ(plan.totals.states, 16 * (12 * h * h / 4 + 4 * h / 2));
  EXPECT_DOUBLE_EQ(plan.totals.workspace, (5 * t * h + 4 * h * h) / 4 * 4);
}

TEST(Task, RefusesModelsWhoseLayersTheGraphDoesNotHold) {
  const auto refused = [](const char* model) {
    const std::filesystem::path file = kConfigs / "models" / (std::string(model) + ".json");
    return mistake_of(model, [&] { primepar_task(read_model(file), file.string()); }).what;
  };
  EXPECT_TRUE(holds(refused("mixtral-8x7b"), "experts"));
  EXPECT_TRUE(holds(refused("t5-large-32"), "blocks differ"));
}

TEST(Space, RefusesSizesThatNoPowerOfTwoDivides) {
  PrimeparTask task = round_task();
  task.batch = 3;
  task.block.tokens = 1023;
  task.block.hidden = 1023;
  const PrimeparMachine machine(round_cluster(1, 4), Precision::fp32, kAllOfThePeak);
  const Mistake mistake = mistake_of(
      "odd sizes", [&] { const PrimeparSpace space(task, machine, PrimeparVariant::paper); });
  EXPECT_TRUE(holds(mistake.what, "no partition of 'add' over 4 devices"));
}

}  // namespace
}  // namespace braid
