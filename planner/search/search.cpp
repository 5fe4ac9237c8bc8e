#include "planner/search/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "planner/core/error.h"
#include "planner/cost/make_cost_model.h"
#include "planner/search/baselines.h"
#include "planner/search/bmw_search.h"
#include "planner/search/certificate.h"
#include "planner/search/exact_search.h"
#include "planner/search/galvatron_search.h"
#include "planner/search/infeasible.h"
#include "planner/search/primepar_points.h"

namespace braid {

namespace {

const std::vector<std::string> kAlgorithms = {"exact", "galvatron", "bmw", "dp",
                                              "zero3", "tp",        "pp",  "megatron-3d"};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void check(const SearchOptions& options) {
  if (options.global_batch < 1 || options.global_batch > (1 << 24))
    throw Error(
        {.what = fmt::format("a global batch of {} samples makes no sense", options.global_batch),
         .where = "--global-batch",
         .fix = "choose from 1 to 16777216"});
}

// Galvatron's formulas know its own space only.
SpaceOptions space_of(const SearchOptions& options) {
  SpaceOptions space = options.space;
  if (options.cost != CostKind::galvatron) return space;
  constexpr int kMost = 8;
  space.schedules = {ScheduleKind::one_f_one_b};
  space.mesh_orders = {MeshOrder::pp_dp_cp_tp};
  space.max_tp = space.max_tp > 0 ? std::min(space.max_tp, kMost) : kMost;
  space.max_pp = space.max_pp > 0 ? std::min(space.max_pp, kMost) : kMost;
  space.max_cp = 1;
  return space;
}

Exploration explore(const SearchContext& context, const DecisionTree& tree,
                    const SearchOptions& options) {
  switch (options.algorithm) {
    case Algorithm::exact:
      return explore_exactly(context, tree, options);
    case Algorithm::galvatron:
      return explore_as_galvatron(context, tree, options);
    case Algorithm::bmw:
      return explore_as_bmw(context, tree, options);
    case Algorithm::dp:
    case Algorithm::zero3:
    case Algorithm::tp:
    case Algorithm::pp:
    case Algorithm::megatron_3d:
      return explore_baseline(context, tree, options);
  }
  return {};
}

bool has_points(const DecisionTree& tree) {
  return std::ranges::any_of(tree.branches, [](const TreeBranch& branch) {
    return std::ranges::any_of(branch.leaves, [](const TreeLeaf& leaf) {
      return !leaf.pruned_by &&
             (leaf.spared_from || leaf.strategy.tp_kind == TensorKind::spatial_temporal);
    });
  });
}

// What the fullest device of a plan does not use, as its step is played.
Bytes left_by(const Plan& plan) {
  Bytes least = plan.prediction.stages.front().budget;
  for (const StagePrediction& stage : plan.prediction.stages)
    least = std::min(least, stage.budget - stage.peak);
  return std::max(least, Bytes());
}

// By how much the layers of a plan may add up to more than there is and its step still fit: as the
// best one that was found shows, or a guess where none was.
Bytes room_beyond(const SearchContext& context, const Exploration& found) {
  if (!context.cost.knows_moments()) return Bytes();
  if (!found.ranked.empty()) return left_by(found.ranked.front().plan);
  constexpr double kGuess = 0.1;
  const bool limited = context.memory_limit > Bytes();
  return scaled(limited ? context.memory_limit : context.cluster.device_types.front().memory,
                kGuess);
}

// Searches a larger space: with points, which multiply the choices of a search whose work is
// limited, and with the memory that layers added up seem to need and a step does not. What was
// found is in the race from the start, and its time bounds the larger search. The bound is that of
// the larger space.
void search_wider(SearchContext context, const DecisionTree& tree, const SearchOptions& options,
                  bool points, Exploration& found) {
  context.beyond = room_beyond(context, found);
  if (found.statistics.interrupted || (!points && context.beyond == Bytes())) return;
  context.only_where_more_memory_helps = !points && !found.ranked.empty();
  Exploration wide = explore_exactly(context, tree, options, std::move(found.ranked));
  if (context.only_where_more_memory_helps)
    wide.lower_bound = std::min(wide.lower_bound, found.lower_bound);
  wide.statistics.solved += found.statistics.solved;
  wide.statistics.strategies += found.statistics.strategies;
  found = std::move(wide);
}

DecisionTree tree_of(const Model& model, const Cluster& cluster, const Profile* profile,
                     const SearchOptions& options, const SpaceOptions& space) {
  DecisionTree tree = build_tree(model, cluster, options.global_batch, space);
  // The papers' algorithms keep to their own spaces.
  const bool points = space.primepar && options.algorithm == Algorithm::exact &&
                      options.cost != CostKind::galvatron;
  if (points)
    add_primepar_points(
        tree, model, cluster,
        {options.precision, options.cost == CostKind::measured ? profile : nullptr});
  return tree;
}

}  // namespace

std::string name_of(Algorithm algorithm) {
  return kAlgorithms[static_cast<std::size_t>(algorithm)];
}

const std::vector<std::string>& algorithm_names() { return kAlgorithms; }

double SearchResult::gap() const {
  if (!plan || !(plan->certificate.lower_bound.value() > 0)) return 0;
  return plan->prediction.iteration / plan->certificate.lower_bound - 1;
}

Balance balance_of(const Plan& plan) {
  double time = 0, slowest = 0, memory = 0, largest = 0;
  for (const StagePrediction& stage : plan.prediction.stages) {
    const double t =
        (stage.times.forward + stage.times.backward_input + stage.times.backward_weight).value();
    const auto m = static_cast<double>(stage.peak.value());
    time += t;
    memory += m;
    slowest = std::max(slowest, t);
    largest = std::max(largest, m);
  }
  return {1 - slowest / time, 1 - largest / memory};
}

DecisionTree searched_tree(const Model& model, const Cluster& cluster, const Profile* profile,
                           const SearchOptions& options) {
  return tree_of(model, cluster, profile, options, space_of(options));
}

SearchResult search(const Model& model, const Cluster& cluster, const Profile* profile,
                    const SearchOptions& options) {
  check(options);
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  const auto cost = make_cost_model(
      {options.cost, options.precision, options.gradient_precision, options.global_batch}, model,
      cluster, profile);
  const SearchContext context{model,
                              cluster,
                              *cost,
                              options.memory_limit,
                              options.space.applies(Rule::covered_layout),
                              options.space.even_cuts};
  SpaceOptions space = space_of(options);
  DecisionTree tree = tree_of(model, cluster, profile, options, space);
  const bool points = options.algorithm == Algorithm::exact && has_points(tree);
  Exploration found = explore(context, points ? without_points(tree) : tree, options);
  if (found.ranked.empty() && !found.statistics.interrupted && space.applies(Rule::fill_pipeline)) {
    // Idle stages are better than no plan.
    space.rules_off.push_back(Rule::fill_pipeline);
    tree = tree_of(model, cluster, profile, options, space);
    found = explore(context, points ? without_points(tree) : tree, options);
  }
  if (options.algorithm == Algorithm::exact) {
    search_wider(context, tree, options, points, found);
  } else if (options.prove && !found.ranked.empty() && !found.statistics.interrupted) {
    // What the others could have found is proven by the exact search alone.
    Exploration exact = explore_exactly(context, tree, options);
    search_wider(context, tree, options, points, exact);
    found.lower_bound = exact.lower_bound;
  }

  SearchResult result;
  result.statistics = found.statistics;
  const auto complete = [&](Plan& plan) {
    plan.cost = options.cost;
    plan.precision = options.precision;
    plan.gradient_precision = options.gradient_precision;
    plan.certificate = {name_of(options.algorithm), Seconds(found.lower_bound),
                        physics_bound(model, cluster, options.global_batch, options.precision)};
  };
  for (std::size_t i = 0; i < found.ranked.size(); ++i) {
    Plan& plan = found.ranked[i].plan;
    complete(plan);
    if (i == 0) {
      result.plan = plan;
    } else if (static_cast<int>(i) <= options.alternatives) {
      result.alternatives.push_back({plan, why_slower(plan, *result.plan)});
    }
  }
  if (result.plan) {
    verify(*result.plan, fmt::format("the plan of '{}'", name_of(options.algorithm)));
  } else if (!found.statistics.interrupted) {
    result.infeasible = explain_infeasible(context, tree, profile, options, complete);
  }
  result.statistics.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.statistics.cpu_seconds = cpu_seconds() - cpu_start;
  return result;
}

}  // namespace braid
