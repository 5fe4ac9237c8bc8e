#include "planner/search/bmw_search.h"

#include <algorithm>

#include "planner/search/balance.h"

namespace braid {

namespace {

// Balanced partitions and strategies for each, or those of the cuts that are given.
std::vector<PipelineSolution> cut_solutions(const PipelineProblem& problem) {
  if (problem.cuts.empty()) return balanced_solutions(problem);
  auto solution = quick_pipeline(problem);
  if (!solution) return {};
  return {*std::move(solution)};
}

}  // namespace

Exploration explore_as_bmw(const SearchContext& context, const DecisionTree& tree,
                           const SearchOptions& options) {
  constexpr std::size_t kPoints = 1000;
  constexpr std::size_t kWork = 5'000'000;
  constexpr std::size_t kCutPoints = 250;
  constexpr std::size_t kCutWork = 300'000;
  Finalists finalists(options.alternatives + 1);
  Exploration result;
  const auto explore = [&](const Configuration& c) {
    look(context.watch);
    if (c.shape.schedule != ScheduleKind::one_f_one_b || c.order != MeshOrder::pp_dp_cp_tp) return;
    ++result.statistics.configurations;
    const BuiltProblem built = build_problem(context, branch_of(tree, c.shape.stages), c);
    result.statistics.strategies += built.priced;
    const double limit = std::min(finalists.limit(c.shape), context.faster_than);
    if (!bound_below(relaxations(built.problem).front(), limit)) return;
    if (c.shape.stages == 1) {
      auto found = find_fitting(context, built, [&](const BuiltProblem& whole) {
        return search_pipeline(whole.problem, {limit, kPoints, kWork}).solution;
      });
      result.statistics.solved += found ? 1 : 0;
      if (found) finalists.add(std::move(*found));
    } else {
      // Reductions of later stages may hide or show: the walk is made under both expectations.
      ProblemOptions expecting;
      expecting.late_reduce = true;
      const BuiltProblem late =
          build_problem(context, branch_of(tree, c.shape.stages), c, expecting);
      for (const BuiltProblem* view : {&built, &late})
        for (const PipelineSolution& solution : cut_solutions(view->problem)) {
          Finalist walked = finalist_of(context, *view, solution);
          const double most = walked.fits ? solution.time : limit;
          finalists.add(std::move(walked));
          // The walk takes the least load of each stage by itself; here stages wait for others, and
          // ramps count.
          auto together = find_fitting(context, *view, [&](const BuiltProblem& cut) {
            return search_cuts(cut.problem, solution.blocks, {most, kCutPoints, kCutWork}).solution;
          });
          if (together) finalists.add(std::move(*together));
        }
      ++result.statistics.solved;
    }
    if (context.watch != nullptr && !finalists.empty()) context.watch->found(*finalists.best());
  };
  result.statistics.interrupted =
      !unless_stopped([&] { std::ranges::for_each(tree.configurations, explore); });
  result.ranked = finalists.ranked();
  return result;
}

}  // namespace braid
