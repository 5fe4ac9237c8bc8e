#pragma once
// From a configuration to the numbers that the exact search works on, and back to a plan.

#include <limits>
#include <optional>

#include "planner/cost/cost_model.h"
#include "planner/plan/plan.h"
#include "planner/search/decision_tree.h"
#include "planner/search/stage_prices.h"
#include "planner/search/stage_search.h"
#include "planner/search/watch.h"

namespace braid {

// Everything a search is about, gathered once.
struct SearchContext {
  const Model& model;
  const Cluster& cluster;
  const CostModel& cost;
  Bytes memory_limit;
  bool drop_covered_layouts = true;  // Rule::covered_layout
  bool even_cuts = false;
  PriceCache* prices = nullptr;  // of the tree that is searched; none: each problem prices anew
  Watch* watch = nullptr;        // asked by all that takes long; null: nothing ends it early
  double faster_than = kForever.value();  // seconds: slower plans need not be found
  bool any_plan = false;                  // whichever fits is asked for, not the fastest
};

// Gradient reductions of later stages hide behind the first stage's last backward, so they carry no
// weight in the iteration. This much breaks ties in favour of less communication.
inline constexpr double kTieWeight = 1e-6;
// What a solution's time proves about every plan of its configuration: no stage reduces for longer
// than the iteration, so tie-breaking has added at most this factor.
inline double without_ties(double time, int stages) {
  return time / (1 + 2 * kTieWeight * (stages - 1));
}

struct BuiltProblem {
  Configuration configuration;
  std::vector<Strategy> strategies;  // that LayerOption::strategy counts
  std::vector<int> block_types;      // a model type for each of the problem's block types
  PipelineProblem problem;
  double least_time = 0;    // seconds that none of its solutions is faster than: LeastPass
  std::int64_t priced = 0;  // layer costs computed for it alone
};

struct ProblemOptions {
  StrategyFilter filter;
  std::optional<StageWeights> weights;  // unset: the cost model's own
  bool late_reduce = false;             // charge every stage for its reduction, hidden or not
  bool recurrence = false;              // changes of layout as Galvatron's recurrence charges them
  bool least_memory = false;            // CostModel::least_resident: what no plan can do without
};
BuiltProblem build_problem(const SearchContext& context, const TreeBranch& branch,
                           const Configuration& configuration, const ProblemOptions& options = {});

// Seconds that no plan of a configuration is faster than: its layers compute, its stages hand on,
// nothing else takes time. Needs no strategy's price.
double ideal_bound(const SearchContext& context, const Configuration& configuration);

// The plan that a solution stands for; its prediction is still empty.
Plan plan_of(const SearchContext& context, const BuiltProblem& built,
             const PipelineSolution& solution);

}  // namespace braid
