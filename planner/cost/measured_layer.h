#pragma once
// What a profile knows of one layer type's compute, as functions of the samples on a device.

#include <map>
#include <optional>
#include <tuple>

#include "planner/profile/fit.h"
#include "planner/profile/profile.h"

namespace braid {

// Seconds of one micro-batch on one device.
struct ComputeTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double selective = 0, full = 0;  // what recomputation adds to backward
};

// A layer that was timed split by split; nothing where the profile has only whole layers' forward
// passes (fit_forward then has to do).
class MeasuredTimes {
 public:
  // Of samples at another length the nearest one's count, by the layer's FLOPs.
  static std::optional<MeasuredTimes> from(const MeasuredLayer& layer, const LayerShape& shape);

  // A split that was not measured takes its share of the nearest one that was.
  ComputeTimes operator()(const Strategy& strategy, double samples) const;
  // Short-lived bytes; nothing where they were not counted.
  std::optional<double> workspace(const Strategy& strategy, double samples) const;

 private:
  using Cut = std::tuple<TensorKind, int, int>;  // kind, ways, context
  struct Curves {
    Curve forward, backward_input, backward_weight, selective, full;
    Curve workspace, workspace_selective, workspace_full;
  };
  struct Nearest {
    const Curves* curves;
    double share;  // of what those curves say
  };
  Nearest nearest(const Strategy& strategy) const;

  std::map<Cut, Curves> by_cut_;
  double scale_ = 1;
};

}  // namespace braid
