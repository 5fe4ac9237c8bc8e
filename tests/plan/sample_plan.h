#pragma once
// Hand-built plans: ten layers (embedding, eight blocks, head) on one node of eight devices.

#include "planner/plan/plan.h"

namespace braid {

inline Model sample_model() {
  LayerShape block;
  block.tokens = 16;
  block.hidden = 64;
  block.attention = AttentionKind::causal;
  block.heads = 8;
  block.kv_heads = 4;
  block.head_dim = 8;
  block.ffn = 128;
  LayerShape embedding;
  embedding.kind = LayerKind::embedding;
  embedding.tokens = 16;
  embedding.hidden = 64;
  embedding.vocab = 101;
  LayerShape head = embedding;
  head.kind = LayerKind::head;
  return {.name = "sample",
          .family = "braid",
          .types = {{"embedding", embedding}, {"block", block}, {"head", head}},
          .layers = {0, 1, 1, 1, 1, 1, 1, 1, 1, 2},
          .sequence = 16};
}

inline Cluster sample_cluster() {
  const Link link{BytesPerSecond(300e9), Seconds(3e-6)};
  return {.name = "one node",
          .device_types = {{.name = "A100-80G",
                            .peak_bf16 = FlopsPerSecond(312e12),
                            .peak_fp32 = FlopsPerSecond(19.5e12),
                            .memory = Bytes(std::int64_t{80} << 30),
                            .memory_bandwidth = BytesPerSecond(2039e9),
                            .peak_fp8 = FlopsPerSecond(624e12)}},  // an imagined one
          .groups = {{.count = 1, .device_type = 0, .devices = 8, .inside = link}},
          .between = link};
}

// Numbers that only a shortest round-trip printer brings back.
inline StagePrediction awkward_prediction() {
  StagePrediction stage;
  stage.times = {Seconds(0.1 + 0.2), Seconds(1.0 / 3), Seconds(5e-324),
                 Seconds(-0.0),      Seconds(7),       Seconds(9.8765432109876543e29)};
  stage.terms.forward_compute = 1e-7;
  stage.terms.regather = 123456789.123456789;
  stage.redistribute = 2.2250738585072014e-308;
  stage.memory.weights = Bytes(9'007'199'254'740'993);  // a double cannot hold it
  stage.memory.workspace = Bytes(1);
  stage.in_flight = 3.5;
  stage.slack = Bytes(7);
  stage.overhead = Bytes(std::int64_t{1} << 30);
  stage.peak = Bytes(std::int64_t{70} << 30);
  stage.budget = Bytes(std::int64_t{1} << 56);
  return stage;
}

// Stages and chunks must divide eight: each virtual stage gets as many blocks, the first one the
// embedding too and the last one the head.
inline Plan sample_plan(const PipelineShape& shape) {
  Plan plan;
  plan.model = sample_model();
  plan.cluster = sample_cluster();
  plan.shape = shape;
  plan.global_batch = std::int64_t{8} * shape.micro_batches;
  const int devices = 8 / shape.stages;
  const int virtual_stages = shape.stages * shape.chunks;
  const int tp = devices > 1 ? 2 : 1;
  for (int i = 0; i < shape.stages; ++i) {
    StagePlan stage;
    for (int c = 0; c < shape.chunks; ++c) {
      const int at = c * shape.stages + i;
      const int blocks = 8 / virtual_stages;
      const LayerRange range{at == 0 ? 0 : at * blocks + 1,
                             (at + 1) * blocks + (at + 1 == virtual_stages ? 2 : 1)};
      stage.chunks.push_back(range);
      for (int layer = range.begin; layer < range.end; ++layer) {
        Strategy s{.dp = devices};
        if (plan.model.type_of(layer).shape.kind == LayerKind::block) {
          s.tp = tp;
          s.dp = devices / tp;
          s.recompute = c == 0 ? Recompute::full : Recompute::selective;
          if (s.replicas() > 1) s.zero = Zero::gradients;
        }
        stage.strategies.push_back(s);
      }
    }
    plan.stages.push_back(stage);
    plan.prediction.stages.push_back(awkward_prediction());
  }
  plan.prediction.iteration = Seconds(1.0 / 7);
  plan.prediction.samples_per_second = 1e21;
  plan.certificate = {"exact", Seconds(0.1), Seconds(1e-3)};
  return plan;
}

// Two stages of four devices. Strategies: stage 0 has the embedding and four blocks, stage 1 four
// blocks and the head; a micro-batch is eight samples of a global batch of 32.
inline Plan two_stage_plan() {
  return sample_plan(
      {.schedule = ScheduleKind::one_f_one_b, .stages = 2, .micro_batches = 4, .chunks = 1});
}

}  // namespace braid
