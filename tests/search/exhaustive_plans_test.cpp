// The whole search against every plan of small spaces: each configuration, cut and strategy, priced
// by the simulator.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "planner/core/json.h"
#include "planner/cost/make_cost_model.h"
#include "planner/plan/legal.h"
#include "planner/search/search.h"
#include "planner/simulate/price_plan.h"

namespace braid {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::string block(const char* name, int ffn, int tokens) {
  return fmt::format(R"({{"name": "{}", "kind": "block", "attention": "causal", "tokens": {},
    "hidden": 2048, "heads": 16, "kv_heads": 16, "head_dim": 128, "ffn": {}}},)",
                     name, tokens, ffn);
}

// Narrow blocks and then wide ones between embedding and head: half a billion parameters, so that
// memory binds at a few GiB.
Model decoder(int narrow, int wide, int tokens = 512) {
  const std::string text = fmt::format(
      R"({{
    "format": "braid.model", "version": 1, "name": "small decoder", "sequence": {0},
    "types": [
      {{"name": "embedding", "kind": "embedding", "tokens": {0}, "hidden": 2048, "vocab": 16000}},
      {1}{2}
      {{"name": "head", "kind": "head", "tokens": {0}, "hidden": 2048, "vocab": 16000}}
    ],
    "layers": [
      {{"type": "embedding", "count": 1}}, {3}{4} {{"type": "head", "count": 1}}
    ]
  }})",
      tokens, narrow > 0 ? block("narrow", 4096, tokens) : "",
      wide > 0 ? block("wide", 16384, tokens) : "",
      narrow > 0 ? fmt::format(R"({{"type": "narrow", "count": {}}},)", narrow) : "",
      wide > 0 ? fmt::format(R"({{"type": "wide", "count": {}}},)", wide) : "");
  return model_from_json(parse_json(text, "decoder"), "decoder");
}

// A patch merge between two resolutions: what neighbours hand on shrinks on the way.
Model pyramid() {
  return model_from_json(parse_json(R"({
    "format": "braid.model", "version": 1, "name": "small pyramid", "sequence": 4096,
    "types": [
      {"name": "patches", "kind": "embedding", "tokens": 4096, "hidden": 512, "patch_inputs": 48},
      {"name": "fine", "kind": "block", "attention": "bidirectional", "tokens": 4096,
       "hidden": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "ffn": 2048},
      {"name": "merge", "kind": "merge", "tokens": 4096, "hidden": 512, "merge_outputs": 1024},
      {"name": "coarse", "kind": "block", "attention": "bidirectional", "tokens": 1024,
       "hidden": 1024, "heads": 16, "kv_heads": 16, "head_dim": 64, "ffn": 65536},
      {"name": "head", "kind": "head", "tokens": 1024, "hidden": 1024, "vocab": 1000, "pooled": true}
    ],
    "layers": [{"type": "patches", "count": 1}, {"type": "fine", "count": 1},
               {"type": "merge", "count": 1}, {"type": "coarse", "count": 1},
               {"type": "head", "count": 1}]
  })",
                                    "pyramid"),
                         "pyramid");
}

DeviceType device(const std::string& name, double teraflops) {
  return {.name = name,
          .peak_bf16 = FlopsPerSecond(teraflops * 1e12),
          .peak_fp32 = FlopsPerSecond(teraflops * 1e11),
          .memory = Bytes(std::int64_t{80} * 1024 * kMiB),
          .memory_bandwidth = BytesPerSecond(teraflops * 6e9)};
}

Link link(double gigabytes) { return {BytesPerSecond(gigabytes * 1e9), Seconds(5e-6)}; }

// `nodes` nodes of `devices` fast devices.
Cluster equal_nodes(int nodes, int devices, double teraflops = 300) {
  return {.name = "equal nodes",
          .device_types = {device("fast", teraflops)},
          .groups = {{.count = nodes, .device_type = 0, .devices = devices, .inside = link(200)}},
          .between = link(20)};
}

// A node of slow devices in front of one of fast devices.
Cluster slow_then_fast(int devices) {
  return {.name = "slow, then fast",
          .device_types = {device("fast", 300), device("slow", 100)},
          .groups = {{.count = 1, .device_type = 1, .devices = devices, .inside = link(30)},
                     {.count = 1, .device_type = 0, .devices = devices, .inside = link(200)}},
          .between = link(20)};
}

struct Case {
  std::string fact;
  Model model;
  Cluster cluster;
  std::int64_t batch = 4;
  std::int64_t memory_mib = 0;  // 0: all there is
  SpaceOptions space;
  bool point_wins = false;  // a strategy that PrimePar's front has spared from a rule
};

SearchOptions options_of(const Case& c) {
  SearchOptions options;
  options.memory_limit = Bytes(c.memory_mib * kMiB);
  options.global_batch = c.batch;
  options.space = c.space;
  return options;
}

std::vector<Case> cases() {
  // Every plan is priced: what does not matter to a case is kept out of its space.
  SpaceOptions no_tensor;
  no_tensor.max_tp = no_tensor.max_cp = 1;
  no_tensor.recompute = false;
  no_tensor.schedules = {ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                         ScheduleKind::zero_bubble};
  no_tensor.mesh_orders = {MeshOrder::pp_dp_cp_tp};
  SpaceOptions no_recompute;
  no_recompute.recompute = false;
  SpaceOptions recompute_in_pipelines;
  recompute_in_pipelines.max_tp = recompute_in_pipelines.max_cp = 1;
  recompute_in_pipelines.mesh_orders = no_tensor.mesh_orders;
  recompute_in_pipelines.schedules = no_tensor.schedules;
  SpaceOptions all_orders = no_tensor;
  all_orders.schedules = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b};
  all_orders.mesh_orders = {};
  SpaceOptions squares = no_recompute;
  squares.rules_off = {Rule::unmeasured_squares};
  SpaceOptions one_stage = no_recompute;
  one_stage.max_pp = 1;
  SpaceOptions one_stage_no_points = one_stage;
  one_stage_no_points.primepar = false;
  SpaceOptions no_ring = one_stage;
  no_ring.max_cp = 1;
  return {
      {"every_square_is_offered", decoder(1, 0), equal_nodes(1, 4), 4, 0, squares},
      // Of 512 tokens a device: a heuristic advises against it.
      {"a_short_ring_wins", decoder(1, 0, 4096), equal_nodes(1, 8, 200), 1, 0, one_stage},
      {"a_square_wins", decoder(1, 1, 2048), equal_nodes(1, 8, 1000), 1, 0, no_ring, true},
      // The fastest has layers that add up to more than the limit, and a step that fits.
      {"a_step_needs_less_than_its_layers", decoder(1, 1, 4096), equal_nodes(1, 4, 100), 2, 3200,
       one_stage_no_points},
      {"two_devices_have_room", decoder(2, 1), equal_nodes(1, 2), 4, 0, no_recompute},
      {"two_devices_are_tight", decoder(2, 1), equal_nodes(1, 2), 4, 4400, no_recompute},
      {"recomputation_makes_room", decoder(2, 1), equal_nodes(1, 2), 8, 5120,
       recompute_in_pipelines},
      {"four_devices_pipeline", decoder(4, 0), equal_nodes(1, 4), 8, 0, no_tensor},
      {"four_devices_are_tight", decoder(2, 2), equal_nodes(1, 4), 8, 5120, no_tensor},
      {"two_nodes", decoder(2, 2), equal_nodes(2, 2), 8, 0, no_tensor},
      {"heuristics_prune_nothing", decoder(2, 1), equal_nodes(2, 2), 4, 0, all_orders},
      {"devices_differ", decoder(2, 2), slow_then_fast(2), 8, 0, no_tensor},
      {"devices_differ_and_are_tight", decoder(2, 2), slow_then_fast(2), 8, 5120, no_tensor},
      {"resolutions_differ", pyramid(), equal_nodes(1, 2), 2, 0, no_recompute},
  };
}

// Calls with every plan of the space; predictions are still empty.
class EveryPlan {
 public:
  explicit EveryPlan(const Case& c)
      : case_(c), tree_(searched_tree(c.model, c.cluster, nullptr, options_of(c))) {}

  template <class Visit>
  void visit(const Visit& visit) {
    for (const Configuration& configuration : tree_.configurations) {
      plan_ = Plan{};
      plan_.model = case_.model;
      plan_.cluster = case_.cluster;
      plan_.memory_limit = Bytes(case_.memory_mib * kMiB);
      plan_.global_batch = case_.batch;
      plan_.shape = configuration.shape;
      plan_.mesh_order = configuration.order;
      strategies_ = kept_strategies(branch_of(tree_, configuration.shape.stages));
      std::vector<int> cuts;
      choose_cuts(cuts, case_.model.num_layers() - 2, visit);
    }
  }

 private:
  template <class Visit>
  void choose_cuts(std::vector<int>& cuts, int left, const Visit& visit) {
    if (static_cast<int>(cuts.size()) == plan_.shape.stages) {
      if (left > 0) return;
      lay_out(cuts);
      choose_strategies(0, 0, visit);
      return;
    }
    for (int count = plan_.shape.chunks; count <= left; count += plan_.shape.chunks) {
      cuts.push_back(count);
      choose_cuts(cuts, left - count, visit);
      cuts.pop_back();
    }
  }

  void lay_out(const std::vector<int>& cuts) {
    plan_.stages.assign(cuts.size(), {});
    int begin = 0;
    for (int chunk = 0; chunk < plan_.shape.chunks; ++chunk)
      for (std::size_t s = 0; s < cuts.size(); ++s) {
        const bool first = begin == 0;
        const bool last = chunk + 1 == plan_.shape.chunks && s + 1 == cuts.size();
        const int end = begin + cuts[s] / plan_.shape.chunks + (first ? 1 : 0) + (last ? 1 : 0);
        plan_.stages[s].chunks.push_back({begin, end});
        begin = end;
      }
    for (StagePlan& stage : plan_.stages) stage.strategies.resize(layers_of(stage).size());
  }

  template <class Visit>
  void choose_strategies(std::size_t stage, std::size_t layer, const Visit& visit) {
    if (stage == plan_.stages.size()) return visit(plan_);
    const std::vector<int> layers = layers_of(plan_.stages[stage]);
    if (layer == layers.size()) return choose_strategies(stage + 1, 0, visit);
    const LayerShape& shape = plan_.model.type_of(layers[layer]).shape;
    for (const Strategy& s : strategies_) {
      if (strategy_fault(shape, s, plan_.micro_batch())) continue;
      plan_.stages[stage].strategies[layer] = s;
      choose_strategies(stage, layer + 1, visit);
    }
  }

  const Case& case_;
  DecisionTree tree_;
  std::vector<Strategy> strategies_;
  Plan plan_;
};

bool fits(const Prediction& prediction) {
  return std::ranges::all_of(
      prediction.stages, [](const StagePrediction& stage) { return stage.peak <= stage.budget; });
}

class EverySmallSpace : public testing::TestWithParam<Case> {};

TEST_P(EverySmallSpace, HoldsNoPlanBelowTheBoundAndNoneBeyondTheGap) {
  const Case& c = GetParam();
  const SearchResult result = search(c.model, c.cluster, nullptr, options_of(c));
  ASSERT_TRUE(result.plan.has_value());
  const double found = result.plan->prediction.iteration.value();
  const double bound = result.plan->certificate.lower_bound.value();

  const auto cost = make_cost_model({.global_batch = c.batch}, c.model, c.cluster, nullptr);
  double best = std::numeric_limits<double>::infinity();
  int plans = 0;
  int fitting = 0;
  EveryPlan(c).visit([&](const Plan& plan) {
    ++plans;
    const Prediction prediction = price_plan(plan, *cost);
    if (!fits(prediction)) return;
    ++fitting;
    best = std::min(best, prediction.iteration.value());
  });
  EXPECT_GT(plans, 500);
  EXPECT_EQ(fitting<plans, c.memory_mib> 0) << "memory binds where the case says so";
  constexpr double kRounding = 1e-9;
  EXPECT_LE(bound, best * (1 + kRounding));
  EXPECT_GE(found, best * (1 - kRounding));
  EXPECT_LE(found, best * (1 + result.gap()) * (1 + kRounding));
  // A gap that lets anything pass would prove nothing.
  EXPECT_LE(found, best * 1.02);
  EXPECT_LT(result.gap(), 0.15);
  if (c.point_wins) {
    SearchOptions without = options_of(c);
    without.space.primepar = false;
    EXPECT_LT(found,
              search(c.model, c.cluster, nullptr, without).plan->prediction.iteration.value());
  }
  RecordProperty("plans", plans);
}

// What is said to be enough memory is what the leanest of all plans needs.
TEST_P(EverySmallSpace, HoldsNoPlanThatNeedsLessMemory) {
  Case c = GetParam();
  if (c.memory_mib == 0) GTEST_SKIP() << "a space where memory does not bind";
  c.memory_mib = 512;
  const SearchResult result = search(c.model, c.cluster, nullptr, options_of(c));
  ASSERT_TRUE(result.infeasible.has_value());
  ASSERT_TRUE(result.infeasible->enough_memory.has_value());
  const auto cost = make_cost_model({.global_batch = c.batch}, c.model, c.cluster, nullptr);
  Bytes least{std::numeric_limits<std::int64_t>::max()};
  EveryPlan(c).visit([&](const Plan& plan) {
    Bytes peak;
    for (const StagePrediction& stage : price_plan(plan, *cost).stages)
      peak = std::max(peak, stage.peak);
    least = std::min(least, peak);
  });
  EXPECT_GE(*result.infeasible->enough_memory, least);
  EXPECT_LE((*result.infeasible->enough_memory - least).value(), kMiB);
}

INSTANTIATE_TEST_SUITE_P(Spaces, EverySmallSpace, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.fact; });

}  // namespace
}  // namespace braid
