#include "planner/search/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <set>
#include <span>

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
                     const SearchOptions& options, Watch* watch = nullptr) {
  const SpaceOptions space = space_of(options);
  DecisionTree tree = build_tree(model, cluster, options.global_batch, space);
  if (options.algorithm != Algorithm::exact) return tree;
  const Profile* timed = options.cost == CostKind::measured ? profile : nullptr;
  keep_timed(tree, space, timed);
  if (space.primepar && options.cost != CostKind::galvatron)
    // A search that is stopped here has the points that were found so far.
    unless_stopped([&] {
      add_primepar_points(tree, model, cluster, {options.precision, timed, watch});
    });
  return tree;
}

void enter_phase(const SearchContext& context, std::string_view phase) {
  if (context.watch != nullptr) context.watch->enter(phase);
}

// Searches an algorithm's own space, or only `within` some configurations: idle stages are better
// than no plan. `tree` is left as the space that was searched.
Exploration explore_alone(const SearchContext& context, const Profile* profile,
                          const SearchOptions& options, DecisionTree& tree,
                          const std::set<Configuration>* within = nullptr) {
  const auto explore_in = [&](const SearchOptions& space) {
    tree = tree_of(context.model, context.cluster, profile, space, context.watch);
    if (within != nullptr)
      std::erase_if(tree.configurations,
                    [&](const Configuration& c) { return !within->contains(c); });
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

// Algorithms whose plans take milliseconds to find, and those that take seconds.
constexpr Algorithm kQuickOthers[] = {Algorithm::megatron_3d, Algorithm::dp, Algorithm::zero3,
                                      Algorithm::tp, Algorithm::pp};
constexpr Algorithm kSlowOthers[] = {Algorithm::bmw, Algorithm::galvatron};

// Plans of other algorithms in some configurations. Each searches its own space: in a larger one
// its limited work finds less.
std::vector<Finalist> plans_of(std::span<const Algorithm> others, const SearchContext& context,
                               const Profile* profile, const SearchOptions& options,
                               const std::vector<Configuration>& configurations) {
  const std::set<Configuration> within(configurations.begin(), configurations.end());
  std::vector<Finalist> plans;
  for (const Algorithm other : others) {
    SearchOptions asked = options;
    asked.algorithm = other;
    DecisionTree tree;
    for (Finalist& finalist : explore_alone(context, profile, asked, tree, &within).ranked)
      plans.push_back(std::move(finalist));
  }
  return plans;
}

double best_of(const Exploration& found) {
  return found.ranked.empty() ? kForever.value()
                              : found.ranked.front().plan.prediction.iteration.value();
}

// Proves what it finds. Points, which multiply the choices of a search whose work is limited, are
// added when a plan without them is known. `tree` is left as the space that the bound speaks of:
// one without points where the search is stopped before it is through with them.
Exploration prove(const SearchContext& context, DecisionTree& tree, const SearchOptions& options,
                  ExactStart start = {}) {
  if (!has_points(tree)) return explore_exactly(context, tree, options, std::move(start));
  DecisionTree narrow = without_points(tree);
  const auto others = start.others;
  start.whole_space = false;
  Exploration found = explore_exactly(context, narrow, options, std::move(start));
  if (found.statistics.interrupted) {
    tree = std::move(narrow);
    return found;
  }
  const double best = best_of(found);
  enter_phase(context, "add PrimePar's points");
  Exploration wide = explore_exactly(context, tree, options,
                                     {.known = std::move(found.ranked),
                                      .alternatives_known = true,
                                      .others = found.asked_others ? nullptr : others});
  wide.asked_others |= found.asked_others;
  wide.statistics.solved += found.statistics.solved;
  wide.statistics.strategies += found.statistics.strategies;
  if (wide.statistics.interrupted && best_of(wide) >= best &&
      wide.lower_bound < found.lower_bound) {
    wide.lower_bound = found.lower_bound;
    wide.open = std::move(found.open);
    wide.statistics.configurations = found.statistics.configurations;
    wide.statistics.open = found.statistics.open;
    tree = std::move(narrow);
  }
  return wide;
}

// Enters plans into the race.
void enter(std::vector<Finalist> plans, const SearchOptions& options, Exploration& found) {
  Finalists all(options.alternatives + 1);
  for (std::vector<Finalist>* list : {&found.ranked, &plans})
    for (Finalist& finalist : *list) all.add(std::move(finalist));
  found.ranked = all.ranked();
}

// Whether nothing is left to do.
bool is_over(const SearchContext& context, Exploration& found) {
  if (context.watch != nullptr && context.watch->due()) found.statistics.interrupted = true;
  return found.statistics.interrupted || found.statistics.ending == Ending::gap;
}

// Begins with the plans of the other algorithms, so that it is never behind one: of those that take
// longer where its bounds leave much room or, at the end, any.
Exploration explore_with_others(const SearchContext& context, const Profile* profile,
                                const SearchOptions& options, DecisionTree& tree) {
  enter_phase(context, "ask other algorithms");
  ExactStart start;
  start.known = plans_of(kQuickOthers, context, profile, options, tree.configurations);
  start.others = [&](const std::vector<Configuration>& open, double than) {
    enter_phase(context, "ask other algorithms");
    SearchContext faster = context;
    faster.faster_than = than;
    return plans_of(kSlowOthers, faster, profile, options, open);
  };
  const auto others = start.others;
  Exploration found = prove(context, tree, options, std::move(start));
  if (found.ranked.empty() || found.open.empty() || found.asked_others || is_over(context, found))
    return found;
  enter(others(found.open, best_of(found)), options, found);
  return found;
}

constexpr std::int64_t kMostLayers = 20'000;  // that one walk prices

// The search adds up what layers need one by one. A step, as it is played, may need less, so that
// a plan may fit where none was found.
void enter_leanest(const SearchContext& context, const DecisionTree& tree,
                   const SearchOptions& options, Exploration& found) {
  if (!found.ranked.empty() || !context.cost.knows_moments() || is_over(context, found)) return;
  enter_phase(context, "look for any plan that fits");
  std::optional<Plan> lean;
  // A walk leaves the spaces of the other algorithms.
  unless_stopped([&] {
    const DecisionTree offered = offered_by(options, context.cluster, tree);
    if (could_fit(context, offered))
      lean = leanest_plan(context, offered, options.algorithm == Algorithm::exact);
  });
  if (is_over(context, found) || !lean || excess_of(*lean) > Bytes()) return;
  found.lower_bound = std::min(found.lower_bound, lean->prediction.iteration.value());
  found.ranked.push_back({*std::move(lean), true});
}

// The plans of an algorithm. `tree` is left as the space that was searched.
Exploration find_plans(const SearchContext& context, const Profile* profile,
                       const SearchOptions& options, DecisionTree& tree) {
  Exploration found;
  if (options.algorithm == Algorithm::exact) {
    tree = tree_of(context.model, context.cluster, profile, options, context.watch);
    found = explore_with_others(context, profile, options, tree);
  } else {
    enter_phase(context, "search configurations");
    found = explore_alone(context, profile, options, tree);
  }
  enter_leanest(context, tree, options, found);
  return found;
}

struct OtherQuestion {
  const Cluster& cluster;
  std::int64_t global_batch;
  Bytes memory_limit;
};

// A plan that fits, whichever is found first. Throws SearchStopped.
std::optional<Plan> find_any(const SearchContext& context, const Profile* profile,
                             const SearchOptions& options, const OtherQuestion& question) {
  SearchOptions asked = options;
  asked.global_batch = question.global_batch;
  asked.alternatives = 0;
  asked.enough_gap = kForever.value();
  // Galvatron's formulas are those of the cluster and batch that were measured.
  if (asked.cost == CostKind::galvatron &&
      (question.cluster.num_devices() != context.cluster.num_devices() ||
       question.global_batch != options.global_batch))
    asked.cost = CostKind::measured;
  const auto cost =
      make_cost_model({asked.cost, asked.precision, asked.gradient_precision, asked.global_batch},
                      context.model, question.cluster, profile);
  const SearchContext other{context.model,
                            question.cluster,
                            *cost,
                            question.memory_limit,
                            context.drop_covered_layouts,
                            context.even_cuts,
                            nullptr,
                            context.watch,
                            kForever.value(),
                            true};
  DecisionTree tree = tree_of(context.model, question.cluster, profile, asked, context.watch);
  if (!could_fit(other, tree)) return std::nullopt;
  Exploration found;
  enter_leanest(other, tree, asked, found);
  if (found.ranked.empty()) found = find_plans(other, profile, asked, tree);
  look(context.watch);
  if (found.ranked.empty()) return std::nullopt;
  return found.ranked.front().plan;
}

// The uniform plan of the space, which takes part in the race.
std::optional<Plan> enter_uniform(const SearchContext& context, const DecisionTree& tree,
                                  const SearchOptions& options, Exploration& found) {
  if (found.ranked.empty() || context.cost.has_own_iteration() || found.statistics.interrupted)
    return std::nullopt;
  enter_phase(context, "look for the best uniform plan");
  BestUniform uniform = best_uniform(context, tree);
  found.statistics.interrupted |= !uniform.complete;
  if (!uniform.plan) return std::nullopt;
  Plan plan = uniform.plan->plan;
  if (plan.prediction.iteration.value() < best_of(found))
    enter({*std::move(uniform.plan)}, options, found);
  return uniform.complete ? std::optional(std::move(plan)) : std::nullopt;
}

// Where the bound leaves room, walks from the best plan of each kind may find a faster one.
void look_nearby(const SearchContext& context, const DecisionTree& tree,
                 const SearchOptions& options, Exploration& found) {
  constexpr double kProven = 1 + 1e-4;
  constexpr std::size_t kWalks = 4;
  if (found.ranked.empty() || context.cost.has_own_iteration() || is_over(context, found) ||
      best_of(found) <= found.lower_bound * kProven)
    return;
  enter_phase(context, "try neighbours of the best plans");
  std::vector<Finalist> walked(std::min(kWalks, found.ranked.size()));
  parallel_for(walked.size(), options.threads, [&](std::size_t i) {
    walked[i] = improve(context, tree, found.ranked[i], kMostLayers);
  });
  enter(std::move(walked), options, found);
  is_over(context, found);
}

// What the exact search proves of another algorithm's plan.
void bound_plan(const SearchContext& context, const Profile* profile, const SearchOptions& options,
                Exploration& found) {
  if (!options.prove || found.ranked.empty() || found.statistics.interrupted) return;
  // What the others could have found is proven by the exact search alone.
  SearchOptions exact = options;
  exact.algorithm = Algorithm::exact;
  DecisionTree tree = tree_of(context.model, context.cluster, profile, exact, context.watch);
  const Exploration proof = prove(context, tree, exact);
  found.lower_bound = std::min(proof.lower_bound, best_of(found));
  found.statistics.strategies += proof.statistics.strategies;
  found.statistics.interrupted = proof.statistics.interrupted;
  found.statistics.ending = proof.statistics.ending;
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
  Watch watch({options.stop, options.time_limit, options.progress});
  SearchContext context{model, cluster, *cost, options.memory_limit};
  context.watch = &watch;
  std::optional<Plan> lean;
  const bool looked = unless_stopped([&] {
    lean = leanest_plan(context, searched_tree(model, cluster, profile, options),
                        options.algorithm == Algorithm::exact);
  });
  if (!looked || (lean && excess_of(*lean) <= Bytes())) return std::nullopt;
  SearchOptions any = options;
  any.enough_gap = kForever.value();
  SearchResult result = search(model, cluster, profile, any);
  if (result.plan || !result.infeasible) return std::nullopt;
  return result;
}

SearchResult search(const Model& model, const Cluster& cluster, const Profile* profile,
                    const SearchOptions& options) {
  check(options);
  check_fixed(options.space, model, cluster, options.global_batch);
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  Watch watch({options.stop, options.time_limit, options.progress});
  const auto cost = make_cost_model(
      {options.cost, options.precision, options.gradient_precision, options.global_batch}, model,
      cluster, profile);
  const SearchContext context{model,
                              cluster,
                              *cost,
                              options.memory_limit,
                              options.space.applies(Rule::covered_layout),
                              options.space.even_cuts,
                              nullptr,
                              &watch};
  DecisionTree tree;
  Exploration found = find_plans(context, profile, options, tree);
  std::optional<Plan> uniform;
  if (options.algorithm == Algorithm::exact) {
    uniform = enter_uniform(context, tree, options, found);
    look_nearby(context, tree, options, found);
  } else {
    bound_plan(context, profile, options, found);
  }

  if (found.statistics.interrupted) found.statistics.ending = watch.ending();
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
    enter_phase(context, "explain why nothing fits");
    watch.freeze();
    const auto any_plan = [&](const Cluster& other, std::int64_t batch, Bytes limit) {
      return find_any(context, profile, options, {other, batch, limit});
    };
    expect_offered(result.tree, options);
    if (!unless_stopped([&] {
          result.infeasible = explain_infeasible(context, result.tree, options, any_plan, complete);
        }))
      result.statistics.interrupted = true;
    if (result.statistics.interrupted) result.statistics.ending = watch.ending();
  }
  result.statistics.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.statistics.cpu_seconds = cpu_seconds() - cpu_start;
  return result;
}

}  // namespace braid
