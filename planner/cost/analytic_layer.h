#pragma once
// A layer's compute from its shapes and a device model: product by product, so that narrow slices
// and small micro-batches cost what they do on the device.

#include "planner/cluster/cluster.h"
#include "planner/cost/device_model.h"
#include "planner/model/layer.h"
#include "planner/strategy/strategy.h"

namespace braid {

// The device model for a cluster's device: the known one whose name stands in its name, with the
// cluster's own peak and bandwidth; figures of a usual device where none is known.
DeviceModel device_model_of(const DeviceType& device, Precision precision);

struct AnalyticTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double attention = 0;  // its part of forward
};
// One micro-batch of `samples` on one device.
AnalyticTimes analytic_layer(const DeviceModel& device, const LayerShape& shape,
                             const Strategy& strategy, double samples, Precision precision);

}  // namespace braid
