#pragma once
// The plans that are still in the race: one for each pipeline degree and schedule, priced by the
// simulator.

#include <limits>
#include <optional>
#include <vector>

#include "planner/search/build_problem.h"

namespace braid {

struct Finalist {
  Plan plan;
  // The search counts what layers need one by one; a whole plan may turn out to need more, where
  // chunks or neighbours are uneven.
  bool fits = true;
};

class Finalists {
 public:
  explicit Finalists(int keep) : keep_(keep) {}

  void add(Finalist finalist);  // if it fits
  // A plan of this shape must be faster than this to matter.
  double limit(const PipelineShape& shape) const;

  std::optional<Seconds> best() const;
  bool empty() const { return finalists_.empty(); }
  // Fastest first.
  std::vector<Finalist> ranked() const;

 private:
  static bool same_kind(const PipelineShape& a, const PipelineShape& b) {
    return a.stages == b.stages && a.schedule == b.schedule;
  }
  int keep_;
  std::vector<Finalist> finalists_;
};

// By how much the fullest stage of a priced plan exceeds its budget; a plan fits at 0 and below.
Bytes excess_of(const Plan& plan);

// The plan that a solution stands for, priced.
Finalist finalist_of(const SearchContext& context, const BuiltProblem& built,
                     const PipelineSolution& solution);

// Where a stage of a solution's plan, as its step is played, needs more than there is: leaves its
// layers so much less than these add up to.
void tighten(PipelineProblem& problem, const PipelineSolution& solution, const Plan& plan);

// What `find`, std::optional<PipelineSolution>(BuiltProblem&), finds, and where that does not fit
// what it finds with so much less memory, and so on: the last of them, which may still not fit.
template <class Find>
std::optional<Finalist> find_fitting(const SearchContext& context, BuiltProblem built,
                                     const Find& find) {
  constexpr int kAttempts = 4;
  std::optional<Finalist> found;
  for (int attempt = 0; attempt < kAttempts && !(found && found->fits); ++attempt) {
    const std::optional<PipelineSolution> solution = find(built);
    if (!solution) break;
    found = finalist_of(context, built, *solution);
    tighten(built.problem, *solution, found->plan);
  }
  return found;
}

}  // namespace braid
