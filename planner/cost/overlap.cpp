#include "planner/cost/overlap.h"

#include <algorithm>
#include <cstdlib>

namespace braid {

Overlap overlap_of(const Profile* profile, Collective op, int ranks, double assumed, double block) {
  const OverlapSample* best = nullptr;
  if (profile != nullptr)
    for (const OverlapSample& s : profile->overlaps) {
      if (s.op != op) continue;
      if (best == nullptr || std::abs(s.ranks - ranks) < std::abs(best->ranks - ranks)) best = &s;
    }
  if (best != nullptr) {
    Overlap found{best->compute, best->communication};
    if (best->block && best->block->value() > 0 && found.communication < kNoProgress)
      found.communication =
          1 + (found.communication - 1) * std::min(1.0, block / best->block->value());
    return found;
  }
  const double one = profile != nullptr ? profile->overlap_slowdown.value_or(assumed) : assumed;
  return {one, one};
}

}  // namespace braid
