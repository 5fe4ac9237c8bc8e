#pragma once
// The collectives that a layer's strategy brings to a pass, and what compute leaves exposed of
// them.

#include "tests/referee/layer.h"

namespace braid::referee {

// Exposed seconds of one micro-batch, beyond compute.
struct PassSeconds {
  double forward = 0, backward = 0;
};

// One layer on its stage, as its collectives see it.
struct LayerOnStage {
  const LayerShape& shape;
  const Strategy& strategy;
  const Setting& setting;
  const StageGroups& groups;
  const Collectives& collectives;

  double samples() const { return setting.micro_batch / strategy.dp; }  // of a micro-batch
  double element() const { return static_cast<double>(bytes_of(setting.precision)); }
  // Bytes of `width` elements for each token that one context rank has.
  double activation(double width) const {
    return samples() * static_cast<double>(shape.tokens) / strategy.cp * width * element();
  }
};

// Sequence-parallel gathers and scatters of a Megatron group, or all-to-alls of a Ulysses group.
PassSeconds tensor_collectives(const LayerOnStage& layer, const ComputeSeconds& compute);
// Ring attention.
PassSeconds context_collectives(const LayerOnStage& layer, const ComputeSeconds& compute);
// Tokens to their experts and back.
PassSeconds expert_collectives(const LayerOnStage& layer);

}  // namespace braid::referee
