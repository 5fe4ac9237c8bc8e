#include "planner/search/finalists.h"

#include <algorithm>
#include <limits>

#include "planner/simulate/price_plan.h"

namespace braid {

namespace {

double iteration_of(const Finalist& f) { return f.plan.prediction.iteration.value(); }

}  // namespace

void Finalists::add(Finalist finalist) {
  if (!finalist.fits) return;
  const auto rival = std::ranges::find_if(
      finalists_, [&](const Finalist& f) { return same_kind(f.plan.shape, finalist.plan.shape); });
  if (rival == finalists_.end()) {
    finalists_.push_back(std::move(finalist));
  } else if (iteration_of(finalist) < iteration_of(*rival)) {
    *rival = std::move(finalist);
  }
}

double Finalists::limit(const PipelineShape& shape) const {
  double own = std::numeric_limits<double>::infinity();
  std::vector<double> times;
  for (const Finalist& f : finalists_) {
    if (same_kind(f.plan.shape, shape)) own = iteration_of(f);
    times.push_back(iteration_of(f));
  }
  if (static_cast<int>(times.size()) < keep_) return own;
  const auto last = times.begin() + (keep_ - 1);
  std::ranges::nth_element(times, last);
  return std::min(own, *last);
}

std::optional<Seconds> Finalists::best() const {
  if (finalists_.empty()) return std::nullopt;
  return Seconds(iteration_of(*std::ranges::min_element(finalists_, {}, iteration_of)));
}

std::vector<Finalist> Finalists::ranked() const {
  std::vector<Finalist> sorted = finalists_;
  std::ranges::stable_sort(sorted, {}, iteration_of);
  return sorted;
}

Bytes excess_of(const Plan& plan) {
  Bytes most{std::numeric_limits<std::int64_t>::min()};
  for (const StagePrediction& stage : plan.prediction.stages)
    most = std::max(most, stage.peak - stage.budget);
  return most;
}

void tighten(PipelineProblem& problem, const PipelineSolution& solution, const Plan& plan) {
  for (std::size_t stage = 0; stage < problem.stages.size(); ++stage) {
    const StagePrediction& needs = plan.prediction.stages[stage];
    if (needs.peak <= needs.budget) continue;
    const SegmentPoint& chosen = solution.stages[stage];
    problem.stages[stage].budget =
        chosen.memory + chosen.workspace - (needs.peak - needs.budget).value();
  }
}

Finalist finalist_of(const SearchContext& context, const BuiltProblem& built,
                     const PipelineSolution& solution) {
  Finalist finalist{plan_of(context, built, solution)};
  finalist.plan.prediction = price_plan(finalist.plan, context.cost);
  finalist.fits = !context.cost.knows_moments() || excess_of(finalist.plan) <= Bytes();
  return finalist;
}

}  // namespace braid
