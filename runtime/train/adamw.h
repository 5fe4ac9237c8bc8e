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

// The Euclidean norm of the whole model's gradient, every element counted once. Collective.
double gradient_norm(std::span<parallel::FlatBuffer* const> buffers, comm::Group& world);

// `step` counts from 1. Gradients are multiplied by `gradient_scale` first.
void adamw_step(std::span<parallel::FlatBuffer* const> buffers, const AdamW& adamw,
                double learning_rate, std::int64_t step, double gradient_scale);

}  // namespace braid::train
