#pragma once
// What is assumed where nothing was measured. Every figure is a choice with a reason, in one place;
// a profile replaces it.

#include "planner/core/units.h"

namespace braid {

struct Assumptions {
  // Shares of the peak that large bf16 matrix products and flash attention reach on A100 and H100.
  double matmul_efficiency = 0.65;
  double attention_efficiency = 0.45;
  // Share of the fp8 peak that a block's products reach, the rounding of their factors included.
  double fp8_efficiency = 0.40;
  // Share of the memory bandwidth that norms, activations and optimizers reach.
  double memory_efficiency = 0.75;
  // Share of a link's nominal bandwidth that collectives of large messages reach.
  double link_efficiency = 0.80;
  // Launching a layer's kernels, one pass: about a dozen at 4 us each.
  Seconds layer_overhead = Seconds(50e-6);
  // Slow-down of compute and communication that run at the same time.
  double overlap_slowdown = 1.10;
  // Of a GPU's memory: CUDA context, libraries and what the driver keeps. CPU ranks have neither
  // this nor communicators' buffers (DeviceKind).
  Bytes context = Bytes(std::int64_t{768} << 20);
  // Buffers of one communicator; a stage has one for all, one for each axis it uses.
  Bytes communicator = Bytes(std::int64_t{256} << 20);
  // What PyTorch's allocator reserves beyond what is in use: 10.5% is the median over 248 ranks.
  double allocator_slack = 0.10;
  // AdamW: reads gradient, master weight and two moments, writes the last three.
  double optimizer_traffic = 28;
};

inline constexpr std::int64_t kMasterBytes = 2;  // what a bf16 weight lacks of its fp32 master
inline constexpr std::int64_t kMomentBytes = 8;  // Adam's two fp32 moments

}  // namespace braid
