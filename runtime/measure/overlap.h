#pragma once
// How compute and communication slow each other down while both run.

#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

#include "planner/profile/profile.h"
#include "runtime/measure/bench.h"

namespace braid::measure {

struct OverlapTask {
  Bench& bench;
  Bytes room;  // that one tensor may take
  Bytes largest_message;
  at::ScalarType values, sums;  // of weights and of gradients
};

// What computes beside operations.
struct Company {
  std::string name;               // ahead of the operation's in the journal
  std::function<void()> compute;  // begins it; a device may still be at work afterwards
  double seconds = 0;             // that it takes, about
  std::int64_t elements = 0;      // of one operation; 0: as few operations as keep on until it ends
  // Of one block's forward and backward, where blocks are what computes.
  std::optional<Seconds> block = std::nullopt;
};

// Adds what each operation and compute do to each other; what is there already is replaced. Without
// a company products keep operations company. Collective.
void measure_overlaps(const OverlapTask& task, Profile& profile);
void measure_overlaps(const OverlapTask& task, const Company& company, Profile& profile);
int num_overlap_measurements(const OverlapTask& task);

// Of seconds: compute alone, compute beside communication, and as much of communication alone as
// was hidden. Below `least` of its speed it makes no progress.
OverlapSample overlap_of(Collective op, int ranks, const std::vector<double>& seconds,
                         double least);

}  // namespace braid::measure
