#include "planner/search/bmw_search.h"

#include "planner/search/balance.h"

namespace braid {

Exploration explore_as_bmw(const SearchContext& context, const DecisionTree& tree,
                           const SearchOptions& options) {
  constexpr std::size_t kPoints = 1000;
  constexpr std::size_t kWork = 5'000'000;
  Finalists finalists(options.alternatives + 1);
  Exploration result;
  int done = 0;
  for (const Configuration& c : tree.configurations) {
    if (options.stop != nullptr && options.stop->load()) {
      result.statistics.interrupted = true;
      break;
    }
    ++done;
    if (c.shape.schedule != ScheduleKind::one_f_one_b || c.order != MeshOrder::pp_dp_cp_tp)
      continue;
    ++result.statistics.configurations;
    const BuiltProblem built = build_problem(context, branch_of(tree, c.shape.stages), c);
    result.statistics.strategies += built.priced;
    const double limit = finalists.limit(c.shape);
    if (!bound_below(relaxations(built.problem).front(), limit)) continue;
    std::vector<PipelineSolution> found;
    if (c.shape.stages > 1) {
      found = balanced_solutions(built.problem, limit);
    } else if (auto whole = search_pipeline(built.problem, {limit, kPoints, kWork}).solution) {
      found.push_back(std::move(*whole));
    }
    result.statistics.solved += found.empty() ? 0 : 1;
    for (const PipelineSolution& solution : found)
      finalists.add(finalist_of(context, built, solution));
    if (options.progress)
      options.progress({done, static_cast<int>(tree.configurations.size()), finalists.best()});
  }
  result.ranked = finalists.ranked();
  return result;
}

}  // namespace braid
