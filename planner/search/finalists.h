#pragma once
// The plans that are still in the race: one for each pipeline degree and schedule, priced by the
// simulator.

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

// The plan that a solution stands for, priced.
Finalist finalist_of(const SearchContext& context, const BuiltProblem& built,
                     const PipelineSolution& solution);

}  // namespace braid
