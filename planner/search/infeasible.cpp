#include "planner/search/infeasible.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "planner/core/error.h"
#include "planner/plan/legal.h"
#include "planner/search/finalists.h"
#include "planner/search/nearby.h"
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
    const auto try_units = [&](int units) {
      auto point = segments.find(stage_layers(problem, stage, begin, units * problem.multiple));
      if (!point || point->memory + point->workspace - budget > excess) return false;
      best = std::move(point);
      count = units * problem.multiple;
      return true;
    };
    int most = room / problem.multiple;
    int least = 0;  // that fits
    if (!try_units(most)) {
      if (stage + 1 == stages) return std::nullopt;
      while (most - least > 1) {
        const int middle = least + (most - least) / 2;
        (try_units(middle) ? least : most) = middle;
      }
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

// The cluster with `nodes` more nodes of its last kind.
Cluster grown(const Cluster& cluster, int nodes) {
  Cluster larger = cluster;
  larger.groups.back().count += nodes;
  return larger;
}

// The cluster with devices of at least so much memory.
Cluster with_memory(const Cluster& cluster, Bytes memory) {
  Cluster larger = cluster;
  for (DeviceType& device : larger.device_types) device.memory = std::max(device.memory, memory);
  return larger;
}

// The memory of a device with which this plan fits.
Bytes need_of(const Plan& plan) {
  Bytes need;
  for (const StagePrediction& stage : plan.prediction.stages)
    if (stage.peak > stage.budget) need = std::max(need, stage.peak);
  return need;
}

// The least memory of a device that a search fits a plan into, to kExact: one MiB less fits none.
class LeastMemory {
 public:
  LeastMemory(const SearchContext& context, const SearchOptions& options, const AnyPlan& any_plan)
      : context_(context), options_(options), any_plan_(any_plan) {}

  // `known` is the leanest plan at hand.
  std::optional<Bytes> find(const Plan& known) {
    Bytes enough = need_of(known);
    for (int doubling = 0; !fits(enough); ++doubling) {
      // A search at another limit takes other ways, and another cost reserves a share.
      if (doubling == kDoublings) return std::nullopt;
      low_ = enough;
      enough = 2 * enough;
    }
    while (fits(enough - kExact)) {
      enough = std::min(enough - kExact, found_);
      while (enough - low_ > kExact) {
        const Bytes middle = low_ + Bytes((enough - low_).value() / 2);
        if (fits(middle)) {
          enough = std::min(middle, found_);
        } else {
          low_ = middle;
        }
      }
    }
    return enough;
  }

 private:
  static constexpr Bytes kExact{std::int64_t{1} << 20};
  static constexpr int kDoublings = 8;

  // A plan of devices with that memory, whose own need may be less and then suffices too.
  bool fits(Bytes memory) {
    if (memory <= Bytes()) return false;
    const auto plan = plan_at(memory);
    if (!plan) return false;
    found_ = memory;
    Bytes peak;
    for (const StagePrediction& stage : plan->prediction.stages) peak = std::max(peak, stage.peak);
    if (peak > low_ && peak < memory && plan_at(peak)) found_ = peak;
    return true;
  }
  std::optional<Plan> plan_at(Bytes memory) {
    const Bytes limit =
        context_.memory_limit == Bytes() ? Bytes() : std::max(context_.memory_limit, memory);
    return any_plan_(with_memory(context_.cluster, memory), options_.global_batch, limit);
  }

  const SearchContext& context_;
  const SearchOptions& options_;
  const AnyPlan& any_plan_;
  Bytes low_;    // nothing fits
  Bytes found_;  // what fits() has found to be enough
};

// The least share of a layer's states that a device holds, over all devices: two bytes for a weight
// (four in fp32) and two moments of four bytes.
constexpr double kLeastStateBytes = 10;

// The fewest devices that a plan fits into: within the node, where the cluster is a part of one,
// then whole nodes of the last kind.
std::optional<int> enough_devices(const SearchContext& context, const SearchOptions& options,
                                  const AnyPlan& any_plan) {
  constexpr int kUsualNode = 8;  // devices
  constexpr int kMostGrowth = 16;
  constexpr int kMostTried = 24;  // node counts that are tried one by one
  const Cluster& cluster = context.cluster;
  const double states = kLeastStateBytes * static_cast<double>(parameters(context.model));
  const auto fits = [&](const Cluster& larger) {
    double memory = 0;
    for (const NodeGroup& group : larger.groups) {
      const Bytes own = larger.device_types[static_cast<std::size_t>(group.device_type)].memory;
      const Bytes usable =
          context.memory_limit == Bytes() ? own : std::min(own, context.memory_limit);
      memory +=
          static_cast<double>(group.count) * group.devices * static_cast<double>(usable.value());
    }
    return memory >= states &&
           any_plan(larger, options.global_batch, context.memory_limit).has_value();
  };
  Cluster node = cluster;
  if (cluster.num_nodes() == 1 && cluster.num_devices() < kUsualNode)
    while (node.groups.back().devices < kUsualNode) {
      ++node.groups.back().devices;
      if (fits(node)) return node.num_devices();
    }
  const int nodes = node.num_nodes();
  const int most = nodes * (kMostGrowth - 1);
  // Few are tried one by one; of many, growth by an eighth brackets the least.
  int more = 1, failed = 0;
  const auto step = [&] { return most <= kMostTried ? 1 : std::max(1, (nodes + more) / 8); };
  while (!fits(grown(node, more))) {
    failed = more;
    if (more == most) return std::nullopt;
    more = std::min(most, more + step());
  }
  while (more - failed > 1) {
    const int middle = failed + (more - failed) / 2;
    (fits(grown(node, middle)) ? more : failed) = middle;
  }
  return grown(node, more).num_devices();
}

// The largest part of the cluster, by halves, that a plan fits into.
std::optional<int> fewer_devices(const SearchContext& context, const SearchOptions& options,
                                 const AnyPlan& any_plan) {
  for (int devices = context.cluster.num_devices() / 2; devices >= 1; devices /= 2) {
    Cluster part;
    try {
      part = shrink(context.cluster, devices);
    } catch (const Error&) {  // no whole nodes
      continue;
    }
    if (any_plan(part, options.global_batch, context.memory_limit)) return devices;
  }
  return std::nullopt;
}

// The global batch nearest to the asked one, by doubling (`larger`) or halving it, that a plan fits
// into.
std::optional<std::int64_t> enough_batch(const SearchContext& context, const SearchOptions& options,
                                         const AnyPlan& any_plan, bool larger) {
  const std::int64_t most =
      std::min<std::int64_t>(1 << 24, 2 * options.global_batch * context.cluster.num_devices());
  std::int64_t batch = options.global_batch;
  while (larger ? batch <= most / 2 : batch >= 2) {
    batch = larger ? batch * 2 : batch / 2;
    if (any_plan(context.cluster, batch, context.memory_limit)) return batch;
  }
  return std::nullopt;
}

}  // namespace

bool could_fit(const SearchContext& context, const DecisionTree& tree) {
  if (!context.cost.knows_moments()) return true;
  SearchContext cached = context;
  PriceCache prices({.model = context.model,
                     .cost = context.cost,
                     .drop_covered_layouts = context.drop_covered_layouts,
                     .watch = context.watch});
  cached.prices = &prices;
  ProblemOptions least;
  least.least_memory = true;
  return std::ranges::any_of(tree.configurations, [&](const Configuration& c) {
    const BuiltProblem built = build_problem(cached, branch_of(tree, c.shape.stages), c, least);
    LeanSegments segments;
    return !even_cuts(built.problem).empty() && fill(built.problem, segments, 0).has_value();
  });
}

std::optional<Plan> leanest_plan(const SearchContext& context, const DecisionTree& tree,
                                 bool walks) {
  constexpr std::int64_t kMostWalked = 20'000;  // layers that one walk prices
  constexpr std::size_t kWalks = 3;
  SearchContext cached = context;
  PriceCache prices({.model = context.model,
                     .cost = context.cost,
                     .drop_covered_layouts = context.drop_covered_layouts,
                     .watch = context.watch});
  cached.prices = &prices;
  const auto build = [&](const Configuration& c, bool least) {
    ProblemOptions options;
    options.least_memory = least;
    return build_problem(cached, branch_of(tree, c.shape.stages), c, options);
  };
  // No plan of a configuration exceeds its budget by less than its layers' least memory does.
  std::vector<std::pair<std::int64_t, Configuration>> leanest_first;
  for (const Configuration& c : tree.configurations)
    if (const auto lean = leanest(build(c, true).problem))
      leanest_first.emplace_back(lean->excess, c);
  std::ranges::stable_sort(leanest_first, {}, [](const auto& lean) { return lean.first; });

  std::vector<Plan> lean_plans;  // least excess first
  for (const auto& [bound, configuration] : leanest_first) {
    if (lean_plans.size() >= kWalks && Bytes(bound) >= excess_of(lean_plans[kWalks - 1])) break;
    for (const bool least : {false, true}) {
      look(context.watch);
      const BuiltProblem built = build(configuration, least);
      const auto lean = leanest(built.problem);
      if (!lean) continue;
      Plan plan = plan_of(context, built, lean->solution);
      plan.prediction = price_plan(plan, context.cost);
      const auto at = std::ranges::upper_bound(lean_plans, excess_of(plan), {}, excess_of);
      lean_plans.insert(at, std::move(plan));
      if (excess_of(lean_plans.front()) <= Bytes()) return lean_plans.front();
    }
    if (lean_plans.size() > kWalks) lean_plans.resize(kWalks);
  }
  if (lean_plans.empty()) return std::nullopt;
  if (!walks) return lean_plans.front();
  std::optional<Plan> closest;
  for (Plan& start : lean_plans) {
    Finalist walked = improve(context, tree, {std::move(start), false}, kMostWalked);
    look(context.watch);
    if (!closest || excess_of(walked.plan) < excess_of(*closest)) closest = std::move(walked.plan);
    if (excess_of(*closest) <= Bytes()) break;
  }
  return closest;
}

Infeasible explain_infeasible(const SearchContext& context, const DecisionTree& tree,
                              const SearchOptions& options, const AnyPlan& any_plan,
                              const std::function<void(Plan&)>& complete) {
  Infeasible answer;
  std::optional<Plan> closest = leanest_plan(context, tree, options.algorithm == Algorithm::exact);
  if (!closest) {
    answer.rule = broken_rule(context.model, tree);
    answer.constraint = answer.rule ? "strategy" : "batch";
    if (tree.configurations.empty()) answer.constraint = "layers";
    const int devices = context.cluster.num_devices();
    if (answer.constraint == "batch")
      answer.reason = fmt::format(
          "a batch of {} cannot be divided over {} devices: every way to split the layers among so "
          "many needs more samples",
          options.global_batch, devices);
    if (answer.constraint == "layers")
      answer.reason = fmt::format(
          "{} devices and {} layers leave no pipeline that the flags and a batch of {} allow",
          devices, context.model.num_layers(), options.global_batch);
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
    answer.enough_memory = LeastMemory(context, options, any_plan).find(answer.closest);
  }
  // What breaks a rule, or has no pipeline, does so on more devices and with other batches.
  const bool batch_binds = answer.constraint == "batch";
  if (batch_binds || answer.constraint == "memory")
    answer.enough_batch = enough_batch(context, options, any_plan, batch_binds);
  if (batch_binds)
    answer.enough_devices = fewer_devices(context, options, any_plan);
  else if (answer.constraint == "memory")
    answer.enough_devices = enough_devices(context, options, any_plan);
  return answer;
}

}  // namespace braid
