#include "planner/search/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <set>

#include "planner/core/error.h"
#include "planner/core/parallel.h"
#include "planner/cost/make_cost_model.h"
#include "planner/search/baselines.h"
#include "planner/search/best_uniform.h"
#include "planner/search/bmw_search.h"
#include "planner/search/certificate.h"
#include "planner/search/exact_search.h"
#include "planner/search/galvatron_search.h"
#include "planner/search/infeasible.h"
#include "planner/search/nearby.h"
#include "planner/search/primepar_points.h"
#include "planner/search/timed_space.h"

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

SpaceOptions space_of(const SearchOptions& options) {
  SpaceOptions space = options.space;
  space.all_configurations = options.algorithm == Algorithm::exact;
  if (options.cost != CostKind::galvatron) return space;
  // Galvatron's formulas know its own space only.
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

// Error where the fixed parts are legal, but not in the space of this algorithm and cost.
void expect_offered(const DecisionTree& tree, const SearchOptions& options) {
  const auto offers = [](const TreeBranch& branch) { return !kept_strategies(branch).empty(); };
  if (!options.space.fixed.any() ||
      (!tree.configurations.empty() && std::ranges::any_of(tree.branches, offers)))
    return;
  const bool galvatron = options.cost == CostKind::galvatron;
  throw Error(
      {.what = fmt::format("the {} '{}' knows no plan with {}", galvatron ? "cost" : "algorithm",
                           galvatron ? name_of(options.cost) : name_of(options.algorithm),
                           options.space.fixed.to_string()),
       .where = galvatron ? "--cost" : "--algorithm",
       .fix = galvatron ? "use --cost measured or roofline" : "use --algorithm exact"});
}

bool has_points(const DecisionTree& tree) {
  return std::ranges::any_of(tree.branches, [](const TreeBranch& branch) {
    return std::ranges::any_of(branch.leaves, [](const TreeLeaf& leaf) {
      return !leaf.pruned_by &&
             (leaf.spared_from || leaf.strategy.tp_kind == TensorKind::spatial_temporal);
    });
  });
}

// The tree of the options' algorithm. Where all is proven, heuristics prune only what the profile
// has not timed.
DecisionTree tree_of(const Model& model, const Cluster& cluster, const Profile* profile,
                     const SearchOptions& options) {
  const SpaceOptions space = space_of(options);
  DecisionTree tree = build_tree(model, cluster, options.global_batch, space);
  if (options.algorithm != Algorithm::exact) return tree;
  const Profile* timed = options.cost == CostKind::measured ? profile : nullptr;
  keep_timed(tree, space, timed);
  if (space.primepar && options.cost != CostKind::galvatron)
    add_primepar_points(tree, model, cluster, {options.precision, timed});
  return tree;
}

// Proves what it finds. Points, which multiply the choices of a search whose work is limited, are
// added when a plan without them is known.
Exploration prove(const SearchContext& context, const DecisionTree& tree,
                  const SearchOptions& options) {
  const bool points = has_points(tree);
  Exploration found = explore_exactly(context, points ? without_points(tree) : tree, options);
  if (!points || found.statistics.interrupted) return found;
  Exploration wide = explore_exactly(context, tree, options, std::move(found.ranked));
  wide.statistics.solved += found.statistics.solved;
  wide.statistics.strategies += found.statistics.strategies;
  return wide;
}

// Searches an algorithm's own space, or only `open` configurations of it: idle stages are
// better than no plan. `tree` is left as the space that was searched.
Exploration explore_alone(const SearchContext& context, const Profile* profile,
                          const SearchOptions& options, DecisionTree& tree,
                          const std::set<Configuration>* open = nullptr) {
  const auto explore_in = [&](const SearchOptions& space) {
    tree = tree_of(context.model, context.cluster, profile, space);
    if (open != nullptr)
      std::erase_if(tree.configurations,
                    [&](const Configuration& c) { return !open->contains(c); });
    return explore(context, tree, options);
  };
  Exploration found = explore_in(options);
  if (!found.ranked.empty() || found.statistics.interrupted ||
      !options.space.applies(Rule::fill_pipeline))
    return found;
  SearchOptions idle = options;
  idle.space.rules_off.push_back(Rule::fill_pipeline);
  return explore_in(idle);
}

// Where the bound leaves room for a faster plan, the other algorithms may know one. Each searches
// its own space: in a larger one its limited work finds less.
void ask_the_others(const SearchContext& context, const Profile* profile,
                    const SearchOptions& options, Exploration& found) {
  if (found.open.empty() || found.ranked.empty() || found.statistics.interrupted) return;
  const std::set<Configuration> open(found.open.begin(), found.open.end());
  Finalists all(options.alternatives + 1);
  for (Finalist& finalist : found.ranked) all.add(std::move(finalist));
  for (const Algorithm other : {Algorithm::megatron_3d, Algorithm::dp, Algorithm::zero3,
                                Algorithm::tp, Algorithm::pp, Algorithm::bmw}) {
    SearchOptions asked = options;
    asked.algorithm = other;
    asked.progress = nullptr;
    DecisionTree tree;
    for (Finalist& finalist : explore_alone(context, profile, asked, tree, &open).ranked)
      all.add(std::move(finalist));
  }
  found.ranked = all.ranked();
}

constexpr std::int64_t kMostLayers = 20'000;  // that one walk prices

// The search adds up what layers need one by one. A step, as it is played, may need less, so that
// a plan may fit where none was found.
void enter_leanest(const SearchContext& context, const DecisionTree& tree,
                   const SearchOptions& options, Exploration& found) {
  if (!found.ranked.empty() || found.statistics.interrupted || !context.cost.knows_moments())
    return;
  auto lean = leanest_plan(context, offered_by(options, context.cluster, tree));
  if (!lean) return;
  Finalist closest{*std::move(lean), false};
  closest.fits = excess_of(closest.plan) <= Bytes();
  // A walk leaves the spaces of the other algorithms.
  if (!closest.fits && options.algorithm == Algorithm::exact)
    closest = improve(context, tree, std::move(closest), kMostLayers);
  if (!closest.fits) return;
  found.lower_bound = std::min(found.lower_bound, closest.plan.prediction.iteration.value());
  found.ranked.push_back(std::move(closest));
}

// The uniform plan of the space, which takes part in the race.
std::optional<Plan> enter_uniform(const SearchContext& context, const DecisionTree& tree,
                                  const SearchOptions& options, Exploration& found) {
  if (found.ranked.empty() || context.cost.has_own_iteration()) return std::nullopt;
  std::optional<Finalist> uniform = best_uniform(context, tree, options.stop);
  if (!uniform) return std::nullopt;
  Plan plan = uniform->plan;
  if (plan.prediction.iteration < found.ranked.front().plan.prediction.iteration) {
    Finalists all(options.alternatives + 1);
    all.add(*std::move(uniform));
    for (Finalist& finalist : found.ranked) all.add(std::move(finalist));
    found.ranked = all.ranked();
  }
  return plan;
}

// Where the bound leaves room, walks from the best plan of each kind may find a faster one.
void look_nearby(const SearchContext& context, const DecisionTree& tree,
                 const SearchOptions& options, Exploration& found) {
  constexpr double kProven = 1 + 1e-4;
  constexpr std::size_t kWalks = 4;
  if (found.ranked.empty() || found.statistics.interrupted || context.cost.has_own_iteration() ||
      found.ranked.front().plan.prediction.iteration.value() <= found.lower_bound * kProven)
    return;
  Finalists all(options.alternatives + 1);
  std::vector<Finalist> walked(std::min(kWalks, found.ranked.size()));
  parallel_for(walked.size(), options.threads, [&](std::size_t i) {
    walked[i] = improve(context, tree, found.ranked[i], kMostLayers);
  });
  for (std::vector<Finalist>* plans : {&found.ranked, &walked})
    for (Finalist& finalist : *plans) all.add(std::move(finalist));
  found.ranked = all.ranked();
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
  return offered_by(options, cluster, tree_of(model, cluster, profile, options));
}

std::optional<SearchResult> search_unless_any_fits(const Model& model, const Cluster& cluster,
                                                   const Profile* profile,
                                                   const SearchOptions& options) {
  check(options);
  check_fixed(options.space, model, cluster, options.global_batch);
  const auto cost = make_cost_model(
      {options.cost, options.precision, options.gradient_precision, options.global_batch}, model,
      cluster, profile);
  const auto lean = leanest_plan({model, cluster, *cost, options.memory_limit},
                                 searched_tree(model, cluster, profile, options));
  if (lean && excess_of(*lean) <= Bytes()) return std::nullopt;
  SearchResult result = search(model, cluster, profile, options);
  if (result.plan || !result.infeasible) return std::nullopt;
  return result;
}

SearchResult search(const Model& model, const Cluster& cluster, const Profile* profile,
                    const SearchOptions& options) {
  check(options);
  check_fixed(options.space, model, cluster, options.global_batch);
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
  DecisionTree tree;
  Exploration found;
  std::optional<Plan> uniform;
  if (options.algorithm == Algorithm::exact) {
    tree = tree_of(model, cluster, profile, options);
    found = prove(context, tree, options);
    ask_the_others(context, profile, options, found);
    enter_leanest(context, tree, options, found);
    uniform = enter_uniform(context, tree, options, found);
    look_nearby(context, tree, options, found);
  } else {
    found = explore_alone(context, profile, options, tree);
    enter_leanest(context, tree, options, found);
    if (options.prove && !found.ranked.empty() && !found.statistics.interrupted) {
      // What the others could have found is proven by the exact search alone.
      SearchOptions exact = options;
      exact.algorithm = Algorithm::exact;
      found.lower_bound =
          prove(context, tree_of(model, cluster, profile, exact), exact).lower_bound;
    }
  }

  SearchResult result;
  result.statistics = found.statistics;
  result.tree = offered_by(options, cluster, std::move(tree));
  const auto complete = [&](Plan& plan) {
    plan.cost = options.cost;
    plan.precision = options.precision;
    plan.gradient_precision = options.gradient_precision;
    plan.certificate = {
        name_of(options.algorithm), Seconds(found.lower_bound),
        physics_bound(model, cluster, options.global_batch, options.precision).total()};
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
  if (uniform) complete(*uniform);
  result.uniform = std::move(uniform);
  if (result.plan) {
    verify(*result.plan, fmt::format("the plan of '{}'", name_of(options.algorithm)));
  } else if (!found.statistics.interrupted) {
    expect_offered(result.tree, options);
    result.infeasible = explain_infeasible(context, result.tree, profile, options, complete);
  }
  result.statistics.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.statistics.cpu_seconds = cpu_seconds() - cpu_start;
  return result;
}

}  // namespace braid
