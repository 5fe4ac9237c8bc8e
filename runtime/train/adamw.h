#pragma once
// AdamW over flat buffers, each rank on the elements it owns, and the norm of the gradient over all
// ranks.

#include <cstdint>
#include <span>

#include "runtime/parallel/flat_buffer.h"

namespace braid::train {

struct AdamW {
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

// The sum of the squares of the whole model's gradient, every element counted once: one fp64 on the
// device. Collective.
at::Tensor gradient_squares(std::span<parallel::FlatBuffer* const> buffers, comm::Group& world);
// The Euclidean norm of it, on the host, which waits for the device.
double gradient_norm(std::span<parallel::FlatBuffer* const> buffers, comm::Group& world);

// `step` counts from 1. Gradients are multiplied by `gradient_scale` first, and dropped at last;
// all replicas have the new weights.
void adamw_step(std::span<parallel::FlatBuffer* const> buffers, const AdamW& adamw,
                double learning_rate, std::int64_t step, double gradient_scale);

// Whether a kernel takes the buffers: step and bf16 weights in one pass over memory.
bool takes_fused_adamw(std::span<parallel::FlatBuffer* const> buffers);
// The same in that pass. `pace` is ops::fused::adamw_pace() and `gradient_scale` one number, both
// on the device; where the scale is not finite nothing changes, so that the host need not look at
// it first.
void fused_adamw_step(std::span<parallel::FlatBuffer* const> buffers, const AdamW& adamw,
                      const at::Tensor& pace, const at::Tensor& gradient_scale);

}  // namespace braid::train
