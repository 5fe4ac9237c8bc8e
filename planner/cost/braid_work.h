#pragma once
// What the files of BraidModel share.

#include "planner/cost/braid_model.h"

namespace braid {

inline constexpr double kCountBytes = 8;  // of a number of rows
// Flash attention's backward makes the scores again: five products for the forward's two.
inline constexpr double kScoresBackward = 2.5;

// Collectives of a tensor group in one pass through a block, about.
inline constexpr double kMeetings = 4;

struct BraidModel::Work {
  const Facts& facts;
  const Strategy& strategy;
  const StageSite& site;
  DeviceSpan where;
  const DeviceType& device;
  double samples;  // of a micro-batch, on one device
  Compute compute;
  double dense;    // parameters on one device that all replicas share
  double experts;  // parameters on one device that belong to experts
  double tied;     // elements of a tied output matrix, where it is a copy of its own
};

}  // namespace braid
