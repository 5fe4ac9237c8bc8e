#pragma once
// Compute and communication side by side, each slowing the other down.

#include "planner/profile/profile.h"

namespace braid {

// Factors while both run; alone each has its own pace.
struct Overlap {
  double compute = 1, communication = 1;

  // Seconds until both are done, when they begin together and take this long alone.
  constexpr double together(double working, double sending) const {
    if (compute * working <= communication * sending)  // compute ends first
      return compute * working + sending - compute * working / communication;
    return communication * sending + working - communication * sending / compute;
  }
  // What communication adds to compute.
  constexpr double exposed(double working, double sending) const {
    return together(working, sending) - working;
  }
};

// What a profile measured for this collective among as many ranks (the nearest number), then its
// one factor for all, then `assumed`. Beside a block that takes `block` seconds forward and
// backward and is shorter than the profile's, an operation waits less.
Overlap overlap_of(const Profile* profile, Collective op, int ranks, double assumed, double block);

}  // namespace braid
