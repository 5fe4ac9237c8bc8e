#pragma once
// What one layer costs under one strategy: seconds and bytes, term by term.

#include "planner/core/units.h"

namespace braid {

// Seconds of one device. "Exposed" communication is what compute does not hide.
struct LayerTime {
  // One micro-batch.
  double forward_compute = 0;
  double backward_input_compute = 0;
  double backward_weight_compute = 0;
  double recompute = 0;       // forward work repeated in backward
  double forward_tensor = 0;  // tensor- and sequence-parallel collectives, exposed
  double backward_tensor = 0;
  double forward_context = 0;  // ring attention's transfers, exposed
  double backward_context = 0;
  double forward_expert = 0;  // all-to-all of a mixture of experts
  double backward_expert = 0;
  double forward_gather = 0;   // ZeRO-3 parameters, exposed
  double backward_gather = 0;  // parameters again, and gradients that are reduced at once, exposed
  // Once an iteration.
  double reduce = 0;    // gradients, exposed beyond the last backward
  double regather = 0;  // updated parameters under ZeRO-1 and 2, exposed
  double update = 0;    // optimizer
  // Communication that compute hides; part of no sum.
  double hidden_tensor = 0;                      // one micro-batch, both passes
  double hidden_context = 0, hidden_gather = 0;  // one micro-batch
  double hidden_reduce = 0;                      // once an iteration, updated parameters too

  double forward() const {
    return forward_compute + forward_tensor + forward_context + forward_expert + forward_gather;
  }
  double backward_input() const {
    return backward_input_compute + recompute + backward_tensor + backward_context +
           backward_expert + backward_gather;
  }
  double backward_weight() const { return backward_weight_compute; }
  double micro_batch() const { return forward() + backward_input() + backward_weight(); }
  double once_reduce() const { return reduce; }
  double once_update() const { return update + regather; }

  LayerTime& operator+=(const LayerTime& other);
};

// Bytes of one device.
struct LayerMemory {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;
  Bytes activations;  // one micro-batch in flight
  Bytes deferred;     // kept for the weight gradients of one micro-batch that wait (zero-bubble)
  Bytes in_turn;      // counted above and never there together: gradients beside activations …
  Bytes constants;    // tables, and what the allocator's blocks are larger than the states
  Bytes workspace;    // short-lived; a stage needs the largest of its layers', not the sum

  Bytes states() const { return weights + gradients + optimizer; }
  LayerMemory& operator+=(const LayerMemory& other);  // workspace: the larger one
};

// What a layer's workspace has room for, moment by moment.
struct ShortLived {
  Bytes at_work;    // tensors of the layer's own, with the gradients that enter and leave
  Bytes by_weight;  // those of a backward by weights alone
  Bytes waiting;    // a block of the tensor group's memory with some of what is deferred …
  int waits = 0;    // … and how many there are
  Bytes gathered;   // its whole weights under ZeRO-3
  Bytes gradient;   // its whole gradients under ZeRO-2 and 3, until they have been scattered …
  Bytes share;      // … and what arrives of them, ahead of being added
};

struct LayerCost {
  LayerTime time;
  LayerMemory memory;
  ShortLived short_lived;
};

}  // namespace braid
