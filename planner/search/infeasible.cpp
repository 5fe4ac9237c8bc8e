#include "planner/search/infeasible.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "planner/cost/make_cost_model.h"
#include "planner/plan/legal.h"
#include "planner/search/baselines.h"
#include "planner/simulate/price_plan.h"

namespace braid {

namespace {

// The way to run a configuration that needs least memory on its fullest stage.
struct Leanest {
  std::int64_t excess = std::numeric_limits<std::int64_t>::max();  // beyond the budget; ≤ 0 fits
  PipelineSolution solution;
};

// Least memory of a menu's layer by the workspace that the stage has room for: workspace ascending,
// memory descending.
using Staircase = std::vector<std::pair<std::int64_t, std::int64_t>>;
Staircase staircase_of(const LayerMenu& menu) {
  Staircase all;
  for (const LayerOption& o : menu.options) all.emplace_back(o.workspace, o.memory);
  std::ranges::sort(all);
  Staircase steps;
  for (const auto& step : all)
    if (steps.empty() || step.second < steps.back().second) steps.push_back(step);
  return steps;
}

// Memory at a workspace; none where every option needs more workspace.
std::optional<std::int64_t> memory_at(const Staircase& steps, std::int64_t workspace) {
  const auto behind = std::ranges::upper_bound(steps, workspace, {}, &Staircase::value_type::first);
  if (behind == steps.begin()) return std::nullopt;
  return std::prev(behind)->second;
}

// The segment that needs least: memory adds up over its layers, workspace is the largest of
// theirs, so that for each workspace the rest is least layer by layer.
class LeanSegments {
 public:
  std::optional<SegmentPoint> find(const std::vector<const LayerMenu*>& layers) {
    Counts counts;
    for (const LayerMenu* menu : layers) {
      if (menu->options.empty()) return std::nullopt;
      auto found = std::ranges::find(counts, menu, &Counts::value_type::first);
      if (found == counts.end()) found = counts.insert(found, {menu, 0});
      ++found->second;
    }
    std::optional<SegmentPoint> best;
    for (const auto& [menu, count] : counts)
      for (const auto& [workspace, memory] : steps_of(menu)) {
        const auto sum = total(counts, workspace);
        if (!sum || (best && *sum + workspace >= best->memory + best->workspace)) continue;
        best.emplace();
        best->memory = *sum;
        best->workspace = workspace;
      }
    if (best)
      for (const LayerMenu* menu : layers) best->choice.push_back(choice(*menu, best->workspace));
    return best;
  }

 private:
  using Counts = std::vector<std::pair<const LayerMenu*, std::int64_t>>;  // layers of each menu

  const Staircase& steps_of(const LayerMenu* menu) {
    const auto [at, added] = steps_.try_emplace(menu);
    if (added) at->second = staircase_of(*menu);
    return at->second;
  }

  std::optional<std::int64_t> total(const Counts& counts, std::int64_t workspace) {
    std::int64_t sum = 0;
    for (const auto& [menu, count] : counts) {
      const auto memory = memory_at(steps_of(menu), workspace);
      if (!memory) return std::nullopt;
      sum += count * *memory;
    }
    return sum;
  }

  static int choice(const LayerMenu& menu, std::int64_t workspace) {
    const auto needs = [&](const LayerOption& o) {
      return o.workspace <= workspace ? o.memory : std::numeric_limits<std::int64_t>::max();
    };
    return static_cast<int>(std::ranges::min_element(menu.options, {}, needs) -
                            menu.options.begin());
  }

  std::map<const LayerMenu*, Staircase> steps_;
};

// Fills stages from the left as long as they stay within `excess` of their budgets. Needs are
// monotone in the blocks, so this fits whenever anything does.
std::optional<Leanest> fill(const PipelineProblem& problem, LeanSegments& segments,
                            std::int64_t excess) {
  const auto stages = static_cast<int>(problem.stages.size());
  const auto blocks = static_cast<int>(problem.blocks.size());
  Leanest lean{std::numeric_limits<std::int64_t>::min(), {}};
  int begin = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t budget = problem.stages[static_cast<std::size_t>(stage)].budget;
    const int room = blocks - begin - (stages - stage - 1) * problem.multiple;
    std::optional<SegmentPoint> best;
    int count = 0;
    for (int n = stage + 1 == stages ? room : problem.multiple; n <= room; n += problem.multiple) {
      auto point = segments.find(stage_layers(problem, stage, begin, n));
      if (!point || point->memory + point->workspace - budget > excess) break;
      best = std::move(point);
      count = n;
    }
    if (!best) return std::nullopt;
    lean.excess = std::max(lean.excess, best->memory + best->workspace - budget);
    lean.solution.blocks.push_back(count);
    lean.solution.stages.push_back(std::move(*best));
    begin += count;
  }
  if (begin != blocks) return std::nullopt;
  return lean;
}

std::optional<Leanest> leanest(const PipelineProblem& problem) {
  if (even_cuts(problem).empty()) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  LeanSegments segments;
  auto best = fill(problem, segments, kMost);
  if (!best) return std::nullopt;
  std::int64_t low = -kMost;
  while (true) {
    const std::int64_t middle = low + (best->excess - low) / 2;
    if (best->excess - low < (std::int64_t{1} << 20) || middle >= best->excess) return best;
    if (auto better = fill(problem, segments, middle)) {
      best = std::move(better);
    } else {
      low = middle;
    }
  }
}

// What a strategy breaks whatever the batch is.
std::optional<Mistake> broken_rule(const Model& model, const Strategy& s) {
  for (const LayerType& type : model.types) {
    if (type.shape.kind == LayerKind::embedding || type.shape.kind == LayerKind::head) continue;
    const auto fault = strategy_fault(type.shape, s, s.dp);
    if (!fault) continue;
    Mistake mistake = describe(*fault, type.shape, s, s.dp);
    mistake.where = fmt::format("layers '{}' under {}", type.name, to_string(s));
    return mistake;
  }
  return std::nullopt;
}

// The first rule broken, where every strategy on offer breaks one.
std::optional<Mistake> broken_rule(const Model& model, const DecisionTree& tree) {
  std::optional<Mistake> first;
  for (const TreeBranch& branch : tree.branches) {
    if (std::ranges::none_of(tree.configurations, [&](const Configuration& c) {
          return c.shape.stages == branch.stages;
        }))
      continue;
    for (const Strategy& s : kept_strategies(branch)) {
      std::optional<Mistake> mistake = broken_rule(model, s);
      if (!mistake) return std::nullopt;
      if (!first) first = std::move(mistake);
    }
  }
  if (first) first->fix += ", or search with --algorithm exact, which takes what divides";
  return first;
}

bool could_run(const SearchContext& context, std::int64_t batch, const SearchOptions& options) {
  const DecisionTree tree = build_tree(context.model, context.cluster, batch, options.space);
  const auto closest = leanest_plan(context, offered_by(options, context.cluster, tree));
  return closest && excess_of(*closest) <= Bytes();
}

// The cluster with more nodes of its last kind.
Cluster grown(const Cluster& cluster, int nodes) {
  Cluster larger = cluster;
  larger.groups.back().count += nodes;
  return larger;
}

}  // namespace

std::optional<Plan> leanest_plan(const SearchContext& context, const DecisionTree& tree) {
  constexpr std::size_t kMostPriced = 32;
  SearchContext cached = context;
  PriceCache prices({context.model, context.cost, context.drop_covered_layouts});
  cached.prices = &prices;
  const auto build = [&](const Configuration& c) {
    return build_problem(cached, branch_of(tree, c.shape.stages), c);
  };
  std::vector<std::pair<std::int64_t, Configuration>>
      leanest_first;  // by what their layers add up to
  for (const Configuration& c : tree.configurations)
    if (const auto lean = leanest(build(c).problem)) leanest_first.emplace_back(lean->excess, c);
  std::ranges::stable_sort(leanest_first, {}, [](const auto& lean) { return lean.first; });
  if (leanest_first.size() > kMostPriced) leanest_first.resize(kMostPriced);

  std::optional<Plan> closest;
  for (const auto& [excess, configuration] : leanest_first) {
    const BuiltProblem built = build(configuration);
    Plan plan = plan_of(context, built, leanest(built.problem)->solution);
    plan.prediction = price_plan(plan, context.cost);
    if (closest && excess_of(plan) >= excess_of(*closest)) continue;
    closest = std::move(plan);
    if (excess_of(*closest) <= Bytes()) break;
  }
  return closest;
}

Infeasible explain_infeasible(const SearchContext& context, const DecisionTree& tree,
                              const Profile* profile, const SearchOptions& options,
                              const std::function<void(Plan&)>& complete) {
  Infeasible answer;
  std::optional<Plan> closest = leanest_plan(context, tree);
  if (!closest) {
    answer.rule = broken_rule(context.model, tree);
    answer.constraint = answer.rule ? "strategy" : "batch";
    if (tree.configurations.empty()) answer.constraint = "layers";
    answer.closest.model = context.model;
    answer.closest.cluster = context.cluster;
    answer.closest.memory_limit = context.memory_limit;
    answer.closest.global_batch = options.global_batch;
    complete(answer.closest);
  } else {
    answer.constraint = "memory";
    answer.closest = *std::move(closest);
    complete(answer.closest);
    std::int64_t worst = std::numeric_limits<std::int64_t>::min();
    for (std::size_t i = 0; i < answer.closest.prediction.stages.size(); ++i) {
      const StagePrediction& stage = answer.closest.prediction.stages[i];
      if ((stage.peak - stage.budget).value() <= worst) continue;
      worst = (stage.peak - stage.budget).value();
      answer.stage = static_cast<int>(i);
      answer.breakdown = stage;
      answer.needed = stage.peak;
      answer.available = stage.budget;
    }
    answer.enough_memory = answer.needed;
  }
  const auto cost_for = [&](const Cluster& cluster, std::int64_t batch) {
    return make_cost_model({options.cost == CostKind::galvatron ? CostKind::measured : options.cost,
                            options.precision, options.gradient_precision, batch},
                           context.model, cluster, profile);
  };
  for (std::int64_t batch = options.global_batch / 2; batch >= 1 && !answer.enough_batch;
       batch /= 2) {
    const auto cost = cost_for(context.cluster, batch);
    if (could_run({context.model, context.cluster, *cost, context.memory_limit}, batch, options))
      answer.enough_batch = batch;
  }
  const int nodes = context.cluster.num_nodes();
  for (int factor = 2; factor <= 16 && !answer.enough_devices; factor *= 2) {
    const Cluster larger = grown(context.cluster, nodes * (factor - 1));
    const auto cost = cost_for(larger, options.global_batch);
    if (could_run({context.model, larger, *cost, context.memory_limit}, options.global_batch,
                  options))
      answer.enough_devices = larger.num_devices();
  }
  return answer;
}

}  // namespace braid
