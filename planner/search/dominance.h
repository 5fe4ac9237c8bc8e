#pragma once
// Which of a sequence of points is covered by an earlier one. Points come in the order of their
// load, so that a sweep needs to look at ramp, memory and workspace only.

#include <cstdint>
#include <map>
#include <vector>

#include "planner/search/layer_search.h"

namespace braid {

struct FrontierPoint {
  double ramp = 0, load = 0;
  std::int64_t memory = 0, workspace = 0;
  int layout = 0;
};

class DominanceSweep {
 public:
  explicit DominanceSweep(const Transitions& transitions);

  // Whether a kept point, moved into the point's layout, is no worse in anything. Loads must not
  // fall from call to call.
  bool covered(const FrontierPoint& point);
  void keep(const FrontierPoint& point);

 private:
  // Least memory by ramp, both strictly monotone.
  class Staircase {
   public:
    bool covers(double ramp, std::int64_t memory) const;
    void insert(double ramp, std::int64_t memory);

   private:
    using Step = std::pair<double, std::int64_t>;
    std::vector<Step> steps_;  // ramp ascending, memory descending
  };
  // Kept points of one layout and workspace as another layout sees them: those whose load, with the
  // change of layout, the sweep has reached.
  struct View {
    std::size_t seen = 0;
    Staircase steps;
  };
  struct Bucket {
    std::vector<FrontierPoint> points;  // in order of load
    std::vector<View> views;            // by the layout that looks
  };

  const Transitions& transitions_;
  std::vector<std::map<std::int64_t, Bucket>> buckets_;  // by layout, then workspace
};

}  // namespace braid
