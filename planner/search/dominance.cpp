#include "planner/search/dominance.h"

#include <algorithm>

namespace braid {

bool DominanceSweep::Staircase::covers(double ramp, std::int64_t memory) const {
  const auto above = std::ranges::upper_bound(steps_, ramp, {}, &Step::first);
  return above != steps_.begin() && std::prev(above)->second <= memory;
}

void DominanceSweep::Staircase::insert(double ramp, std::int64_t memory) {
  if (covers(ramp, memory)) return;
  auto at = std::ranges::lower_bound(steps_, ramp, {}, &Step::first);
  auto end = at;
  while (end != steps_.end() && end->second >= memory) ++end;
  at = steps_.erase(at, end);
  steps_.insert(at, {ramp, memory});
}

DominanceSweep::DominanceSweep(const Transitions& transitions)
    : transitions_(transitions), buckets_(static_cast<std::size_t>(transitions.layouts())) {}

bool DominanceSweep::covered(const FrontierPoint& point) {
  for (int from = 0; from < transitions_.layouts(); ++from) {
    const double load = transitions_.load(from, point.layout);
    const double ramp = transitions_.ramp(from, point.layout);
    for (auto& [workspace, bucket] : buckets_[static_cast<std::size_t>(from)]) {
      if (workspace > point.workspace) break;
      View& view = bucket.views[static_cast<std::size_t>(point.layout)];
      while (view.seen < bucket.points.size() &&
             bucket.points[view.seen].load + load <= point.load) {
        const FrontierPoint& kept = bucket.points[view.seen++];
        view.steps.insert(kept.ramp + ramp, kept.memory);
      }
      if (view.steps.covers(point.ramp, point.memory)) return true;
    }
  }
  return false;
}

void DominanceSweep::keep(const FrontierPoint& point) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(point.layout)][point.workspace];
  if (bucket.views.empty()) bucket.views.resize(static_cast<std::size_t>(transitions_.layouts()));
  bucket.points.push_back(point);
}

}  // namespace braid
