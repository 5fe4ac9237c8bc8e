#pragma once
// One layer on the devices of its stage: FLOPs, bytes and parameters of a device, the seconds of
// its passes, and the collectives that its strategy brings. Seconds of one micro-batch unless said
// otherwise.

#include "planner/model/layer.h"
#include "tests/referee/groups.h"
#include "tests/referee/simplifications.h"

namespace braid::referee {

// FLOPs of one device in a forward pass. A sub-layer of a block has products inward (q, k and v;
// gate and up), attention's scores and weighted sums, and outward ones.
struct DeviceFlops {
  double attention_inward = 0, scores = 0, attention_outward = 0;
  double ffn_inward = 0, ffn_outward = 0;
  double other = 0;  // the router of a mixture; the output matrix of a head
  double matmul() const {
    return attention_inward + attention_outward + ffn_inward + ffn_outward + other;
  }
};

// Parameters that one device holds.
struct DeviceParameters {
  double dense = 0;    // the same on all replicas
  double experts = 0;  // the same on the replicas of its experts
  double copied = 0;   // of a tied output matrix: the head's copy of the embedding's rows
};

// What does not depend on the layer: one configuration of a plan.
struct Setting {
  const Wires& wires;
  Simplifications simple;
  MeshOrder order = MeshOrder::pp_dp_cp_tp;
  int stages = 1;
  int micro_batches = 1;
  double micro_batch = 1;  // samples, over the whole stage
  bool defers = false;     // weight gradients are made apart from the input's (zero-bubble)
  Precision precision = Precision::bf16, gradients = Precision::fp32;
  bool tied = false;  // the head shares the embedding's table
};

// What hides gradient collectives on one type of device.
struct Backward {
  double compute = 0;   // all of the layer's backward, recomputation included
  double gathered = 0;  // exposed in every backward already, the last one included
};

struct LayerSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double update = 0;  // once a step: optimizer, and updated parameters on their way to replicas
  // Gradients, once a step: collectives beside the last backward, and those beside nothing.
  double gradients = 0, exposed_gradients = 0;
  std::vector<Backward> backward;  // by type of device
};

// Seconds by which gradient reduction prolongs the step when spare[i] more seconds of compute
// follow the layer's own backward on the i-th type of device.
double reduce_seconds(const LayerSeconds& layer, const std::vector<double>& spare);

// Seconds until compute and communication that start together are both done: while both run, each
// takes Assumptions::overlap_slowdown times as long.
double together(double compute, double communication);
// What communication adds to compute.
double exposed(double compute, double communication);

DeviceFlops flops_of(const LayerShape& shape, const Strategy& s, double samples);
DeviceParameters parameters_of(const LayerShape& shape, const Strategy& s, const Setting& setting);

// Seconds of compute on one device.
struct ComputeSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0, recompute = 0;
  double scores = 0;  // attention's part of forward
  double all_backward() const { return backward_input + backward_weight + recompute; }
};
ComputeSeconds compute_on(const DeviceType& device, const LayerShape& shape, const Strategy& s,
                          const Setting& setting);

// The distinct device types of a stage. Each of its passes waits for the one that is slowest at it.
std::vector<const DeviceType*> types_of(const std::vector<Coordinates>& devices,
                                        const Setting& setting);

LayerSeconds price_layer(const LayerShape& shape, const Strategy& s, int stage,
                         const Setting& setting);

}  // namespace braid::referee
