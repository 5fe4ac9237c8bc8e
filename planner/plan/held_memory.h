#pragma once
// What a device held during a run, in the terms of a plan's prediction.

#include <array>
#include <optional>

#include "planner/core/units.h"

namespace braid {

struct HeldMemory {
  Bytes weights, gradients, optimizer;
  Bytes activations;               // kept for backward, at the worst moment
  std::optional<Bytes> allocated;  // by the device's allocator, at the worst moment

  Bytes total() const { return weights + gradients + optimizer + activations; }
  bool operator==(const HeldMemory&) const = default;
};

}  // namespace braid
