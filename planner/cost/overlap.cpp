#include "planner/cost/overlap.h"

#include <cstdlib>

namespace braid {

Overlap overlap_of(const Profile* profile, Collective op, int ranks, double assumed) {
  const OverlapSample* best = nullptr;
  if (profile != nullptr)
    for (const OverlapSample& s : profile->overlaps) {
      if (s.op != op) continue;
      if (best == nullptr || std::abs(s.ranks - ranks) < std::abs(best->ranks - ranks)) best = &s;
    }
  if (best != nullptr) return {best->compute, best->communication};
  const double one = profile != nullptr ? profile->overlap_slowdown.value_or(assumed) : assumed;
  return {one, one};
}

}  // namespace braid
