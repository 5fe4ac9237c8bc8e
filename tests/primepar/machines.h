#pragma once
// Machines and tasks of round numbers for tests of PrimePar.

#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/primepar/operator_cost.h"

namespace braid {

inline constexpr Assumptions kAllOfThePeak{.matmul_efficiency = 1,
                                           .attention_efficiency = 1,
                                           .memory_efficiency = 1,
                                           .link_efficiency = 1};

// 10 TFLOP/s in fp32; 100 GB/s inside a node and 10 GB/s a device between nodes, at once.
inline Cluster round_cluster(int nodes, int devices) {
  const auto link = [](double bandwidth) { return Link{BytesPerSecond(bandwidth), Seconds(0)}; };
  return {.name = "round",
          .device_types = {{.name = "device",
                            .peak_bf16 = FlopsPerSecond(1e14),
                            .peak_fp32 = FlopsPerSecond(1e13),
                            .memory = Bytes(std::int64_t{1} << 35),
                            .memory_bandwidth = BytesPerSecond(1e12)}},
          .groups = {{.count = nodes, .device_type = 0, .devices = devices, .inside = link(100e9)}},
          .between = link(10e9)};
}

// Eight samples of 1024 tokens, 1024 wide, feed-forward 4096.
inline PrimeparTask round_task() {
  PrimeparTask task;
  task.block.kind = LayerKind::block;
  task.block.tokens = 1024;
  task.block.hidden = 1024;
  task.block.attention = AttentionKind::causal;
  task.block.heads = task.block.kv_heads = 16;
  task.block.head_dim = 64;
  task.block.ffn = 4096;
  task.batch = 8;
  task.layers = 4;
  task.precision = Precision::fp32;
  return task;
}

}  // namespace braid
