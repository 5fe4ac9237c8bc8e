// Simpler problems whose optima are lower bounds of a pipeline problem's.

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "planner/search/stage_search.h"

namespace braid {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Visit>
void each_option(StageMenus& stage, Visit visit) {
  for (auto* menus : {&stage.blocks, &stage.before, &stage.after})
    for (LayerMenu& menu : *menus)
      for (LayerOption& option : menu.options) visit(option);
}

// Replaces the ramps and loads of options and transitions alike.
template <class Change>
void rewrite(StageMenus& stage, Change change) {
  each_option(stage, [&](LayerOption& o) { std::tie(o.ramp, o.load) = change(o.ramp, o.load); });
  Transitions& t = stage.transitions;
  for (int from = 0; from < t.layouts(); ++from)
    for (int to = 0; to < t.layouts(); ++to) {
      const auto [ramp, load] = change(t.ramp(from, to), t.load(from, to));
      t.set(from, to, ramp, load);
    }
}

PipelineProblem with_proportional_ramps(const PipelineProblem& problem) {
  PipelineProblem result = problem;
  result.load_alone = true;
  for (StageMenus& stage : result.stages) {
    double proportion = kInfinity;
    // Of transitions too: the least load has the least ramp only where every ramp follows its load.
    rewrite(stage, [&](double ramp, double load) {
      if (load > 0) proportion = std::min(proportion, ramp / load);
      return std::pair(ramp, load);
    });
    if (proportion == kInfinity) proportion = 0;
    rewrite(stage, [&](double ramp, double load) {
      return std::pair(std::min(ramp, proportion * load), load);
    });
    result.proportions.push_back(proportion);
  }
  return result;
}

PipelineProblem with_weighted_load(const PipelineProblem& problem, double weight) {
  PipelineProblem result = problem;
  result.load_alone = true;
  result.proportions = {0.0};
  rewrite(result.stages.front(), [&](double ramp, double load) {
    return std::pair(0.0, weight * ramp + (1 - weight) * load);
  });
  return result;
}

bool has_ramp(StageMenus stage) {
  bool found = stage.ramp != 0;
  rewrite(stage, [&](double ramp, double load) {
    found |= ramp != 0;
    return std::pair(ramp, load);
  });
  return found;
}

}  // namespace

std::vector<PipelineProblem> relaxations(const PipelineProblem& problem) {
  if (problem.stages.size() > 1) return {with_proportional_ramps(problem)};
  if (!has_ramp(problem.stages.front())) return {with_weighted_load(problem, 0.0)};
  return {with_weighted_load(problem, 1.0), with_weighted_load(problem, 0.0),
          with_weighted_load(problem, 0.5)};
}

bool load_decides(const PipelineProblem& problem) {
  return problem.stages.size() == 1 && !has_ramp(problem.stages.front());
}

}  // namespace braid
