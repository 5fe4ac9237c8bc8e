#include "tests/explain/example_plan.h"

#include "planner/simulate/price_plan.h"

namespace braid {
namespace {

using namespace literals;

Model example_model(int blocks) {
  LayerShape embedding{.kind = LayerKind::embedding, .tokens = 100, .hidden = 64};
  embedding.vocab = 1000;
  LayerShape block{.kind = LayerKind::block, .tokens = 100, .hidden = 64};
  block.attention = AttentionKind::causal;
  block.heads = block.kv_heads = 4;
  block.head_dim = 16;
  block.ffn = 256;
  LayerShape head{.kind = LayerKind::head, .tokens = 100, .hidden = 64};
  head.vocab = 1000;
  Model model{.name = "example", .family = "braid", .types = {}, .layers = {0}, .sequence = 100};
  model.types = {{"embedding", embedding}, {"decoder", block}, {"head", head}};
  model.layers.insert(model.layers.end(), static_cast<std::size_t>(blocks), 1);
  model.layers.push_back(2);
  return model;
}

Cluster example_cluster(int devices) {
  Cluster cluster;
  cluster.name = "example cluster";
  cluster.device_types = {{.name = "device",
                           .peak_bf16 = FlopsPerSecond(1e12),
                           .peak_fp32 = FlopsPerSecond(1e11),
                           .memory = 16_GiB,
                           .memory_bandwidth = BytesPerSecond(1e12)}};
  const Link link{BytesPerSecond(1e10), Seconds(1e-6)};
  cluster.groups = {{1, 0, devices, link}};
  cluster.between = link;
  return cluster;
}

StagePrediction example_stage(double held) {
  StagePrediction stage;
  stage.terms.forward_compute = 1;
  stage.terms.backward_input_compute = 1;
  stage.terms.backward_weight_compute = 1;
  stage.times = {Seconds(1), Seconds(1), Seconds(1), Seconds(0), Seconds(0), Seconds(0.5)};
  stage.memory = {.weights = 2_GiB,
                  .gradients = 2_GiB,
                  .optimizer = 4_GiB,
                  .activations = 1_GiB,
                  .deferred = {},
                  .in_turn = {},
                  .constants = {},
                  .workspace = 1_GiB};
  stage.in_flight = held;
  stage.overhead = 1_GiB;
  stage.peak = scaled(1_GiB, 10 + held);
  stage.budget = 16_GiB;
  return stage;
}

}  // namespace

Plan long_plan(int stages) {
  Plan plan;
  plan.model = example_model(stages * 2);
  plan.cluster = example_cluster(stages);
  plan.global_batch = 4;
  plan.shape = {ScheduleKind::one_f_one_b, stages, 2, 1};
  const Strategy whole;
  Strategy thrifty;
  thrifty.recompute = Recompute::full;
  for (int i = 0; i < stages; ++i) {
    const bool first = i == 0;
    const bool last = i + 1 == stages;
    const int begin = first ? 0 : 1 + 2 * i;
    const int end = 3 + 2 * i + (last ? 1 : 0);
    StagePlan stage{{{begin, end}}, {}};
    for (int layer = begin; layer < end; ++layer)
      stage.strategies.push_back(layer == 0 || layer + 1 == plan.model.num_layers() ? whole
                                                                                    : thrifty);
    plan.stages.push_back(stage);
    plan.prediction.stages.push_back(example_stage(in_flight(plan.shape, i)));
  }
  plan.prediction.iteration = simulate(plan.shape, stage_times(plan.prediction)).iteration;
  plan.prediction.samples_per_second = 4 / plan.prediction.iteration.value();
  plan.certificate = {"exact", Seconds(8), Seconds(5)};
  return plan;
}

Plan example_plan() { return long_plan(2); }

}  // namespace braid
