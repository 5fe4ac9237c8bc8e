#include "planner/search/uniform_plans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "planner/core/error.h"
#include "planner/cost/make_cost_model.h"
#include "planner/search/certificate.h"

namespace braid {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a plan is an example of: kind of feature and value.
using Feature = std::pair<int, int>;

const Strategy& block_strategy(const Plan& plan) {
  for (const StagePlan& stage : plan.stages) {
    const std::vector<int> layers = layers_of(stage);
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (plan.model.type_of(layers[i]).shape.kind == LayerKind::block) return stage.strategies[i];
  }
  internal_failure("a plan without blocks", std::source_location::current());
}

std::set<Feature> features_of(const Plan& plan) {
  const Strategy& s = block_strategy(plan);
  const int tensor = s.tp == 1 ? 0 : 1 + static_cast<int>(s.tp_kind);
  std::set<Feature> features = {{0, plan.shape.stages},        {1, tensor},
                                {2, static_cast<int>(s.zero)}, {3, static_cast<int>(s.recompute)},
                                {4, s.cp > 1 ? 1 : 0},         {5, s.ep > 1 ? 1 : 0}};
  // One stage has no schedule to speak of.
  if (plan.shape.stages > 1) features.insert({6, static_cast<int>(plan.shape.schedule)});
  return features;
}

std::size_t num_new(const std::set<Feature>& features, const std::set<Feature>& known) {
  return static_cast<std::size_t>(
      std::ranges::count_if(features, [&](const Feature& f) { return !known.contains(f); }));
}

// Indices that show every feature, in the order of choice: each time the plan that shows most that
// is new, the fastest of equals.
std::vector<std::size_t> cover(const std::vector<std::set<Feature>>& plans, std::size_t most) {
  std::set<Feature> known;
  std::vector<std::size_t> chosen;
  while (chosen.size() < most) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < plans.size(); ++i)
      if (num_new(plans[i], known) > num_new(plans[best], known)) best = i;
    if (num_new(plans[best], known) == 0) break;
    known.insert(plans[best].begin(), plans[best].end());
    chosen.push_back(best);
  }
  return chosen;
}

// The free index nearest to `target`, the lower of equals.
std::size_t nearest_free(const std::vector<bool>& taken, double target) {
  std::size_t best = taken.size();
  const auto distance = [&](std::size_t i) { return std::abs(static_cast<double>(i) - target); };
  for (std::size_t i = 0; i < taken.size(); ++i)
    if (!taken[i] && (best == taken.size() || distance(i) < distance(best))) best = i;
  return best;
}

}  // namespace

std::optional<Finalist> uniform_plan(const SearchContext& context, const TreeBranch& branch,
                                     const Configuration& configuration, const Strategy& strategy,
                                     double limit, std::int64_t& priced) {
  Strategy outside = strategy;
  outside.recompute = Recompute::none;
  outside.ep = 1;
  if (strategy.tp_kind == TensorKind::spatial_temporal) {  // tables and logits form no square
    outside.tp_kind = TensorKind::megatron;
    outside.square = 1;
    outside.variant = SquareVariant::plus_minus;
  }
  ProblemOptions uniform;
  uniform.filter = {[&](const Strategy& other) { return other == strategy; },
                    [&](const Strategy& other) { return other == outside; }};
  const BuiltProblem built = build_problem(context, branch, configuration, uniform);
  priced += built.priced;
  const std::vector<int> cuts = even_cuts(built.problem);
  if (cuts.empty()) return std::nullopt;
  const auto solution = search_cuts(built.problem, cuts, {.time = limit}).solution;
  if (!solution) return std::nullopt;
  Finalist found = finalist_of(context, built, *solution);
  if (!found.fits) return std::nullopt;
  return found;
}

std::vector<Plan> uniform_plans(const Model& model, const Cluster& cluster, const Profile* profile,
                                const SearchOptions& options) {
  const auto cost = make_cost_model(
      {options.cost, options.precision, options.gradient_precision, options.global_batch}, model,
      cluster, profile);
  Watch watch({options.stop, options.time_limit, options.progress});
  SearchContext context{model, cluster, *cost, options.memory_limit};
  context.watch = &watch;
  const DecisionTree tree = build_tree(model, cluster, options.global_batch, options.space);
  const Certificate certificate{
      "uniform", Seconds(0),
      physics_bound(model, cluster, options.global_batch, options.precision).total()};
  std::vector<Plan> plans;
  std::int64_t priced = 0;
  const auto explore = [&](const Configuration& c) {
    const TreeBranch& branch = branch_of(tree, c.shape.stages);
    for (const Strategy& s : kept_strategies(branch)) {
      look(&watch);
      std::optional<Finalist> found = uniform_plan(context, branch, c, s, kInfinity, priced);
      if (!found) continue;
      Plan& plan = found->plan;
      plan.cost = options.cost;
      plan.precision = options.precision;
      plan.gradient_precision = options.gradient_precision;
      plan.certificate = certificate;
      verify(plan, "a uniform plan");
      plans.push_back(std::move(plan));
    }
  };
  watch.enter("price uniform plans");
  unless_stopped([&] { std::ranges::for_each(tree.configurations, explore); });
  std::ranges::stable_sort(plans, {}, [](const Plan& p) { return p.prediction.iteration; });
  return plans;
}

std::vector<Plan> spread(const std::vector<Plan>& plans, int count, double slowest) {
  std::vector<std::set<Feature>> features;
  for (const Plan& plan : plans) {
    if (plan.prediction.iteration > slowest * plans.front().prediction.iteration) break;
    features.push_back(features_of(plan));
  }
  const std::size_t wanted = std::min(features.size(), static_cast<std::size_t>(count));
  std::vector<bool> taken(features.size());
  std::size_t chosen = 0;
  for (const std::size_t index : cover(features, wanted)) {
    taken[index] = true;
    ++chosen;
  }
  const std::size_t left = wanted - chosen;
  for (std::size_t i = 0; i < left; ++i) {
    const double share = left == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(left - 1);
    taken[nearest_free(taken, share * static_cast<double>(features.size() - 1))] = true;
  }
  std::vector<Plan> result;
  for (std::size_t i = 0; i < taken.size(); ++i)
    if (taken[i]) result.push_back(plans[i]);
  return result;
}

}  // namespace braid
