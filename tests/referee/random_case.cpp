#include "tests/referee/random_case.h"

#include <algorithm>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/plan/legal.h"

namespace braid::referee {

namespace {

Link link(double gigabytes, double microseconds) {
  return {BytesPerSecond(gigabytes * 1e9), Seconds(microseconds * 1e-6)};
}

DeviceType type(const char* name, double teraflops, double gigabytes) {
  return {.name = name,
          .peak_bf16 = FlopsPerSecond(teraflops * 1e12),
          .peak_fp32 = FlopsPerSecond(teraflops * 1e12 / 8),
          .memory = Bytes(std::int64_t{1} << 46),  // any plan fits
          .memory_bandwidth = BytesPerSecond(gigabytes * 1e9),
          .peak_fp8 = FlopsPerSecond(2.2 * teraflops * 1e12)};
}

}  // namespace

Cluster CaseDice::cluster(int most_devices, int most_nodes) {
  // The last one computes faster than the first and has the slower memory.
  const std::vector<DeviceType> types = {type("one", 125, 900), type("two", 312, 1940),
                                         type("three", 165, 600)};
  const std::vector<Link> links = {link(300, 3), link(64, 5), link(12, 8)};
  const bool alike = chance(0.5);
  const int nodes = number(1, std::min(most_nodes, most_devices));
  Cluster cluster;
  cluster.name = "random";
  cluster.device_types = types;
  cluster.between = any<Link>({link(25, 10), link(50, 6), link(3, 30)});
  NodeGroup node{.count = 1,
                 .device_type = number(0, 2),
                 .devices = number(1, std::max(1, most_devices / nodes)),
                 .inside = any(links)};
  for (int n = 0, left = most_devices; n < nodes; ++n) {
    if (!alike && n > 0) {
      node.devices = number(1, std::max(1, left - (nodes - n - 1)));
      if (chance(0.5)) node.inside = any(links);
      if (chance(0.5)) node.device_type = number(0, 2);
    }
    left -= node.devices;
    const bool merges = alike && n > 0 && chance(0.5);
    if (merges)
      ++cluster.groups.back().count;
    else
      cluster.groups.push_back(node);
  }
  return cluster;
}

Model CaseDice::model(int blocks) {
  LayerShape block;
  block.tokens = any<std::int64_t>({256, 512, 1024, 2048, 4096, 8192});
  block.hidden = any<std::int64_t>({256, 512, 1024, 2048, 4096});
  block.attention = chance(0.8) ? AttentionKind::causal : AttentionKind::bidirectional;
  block.heads = any<std::int64_t>({4, 8, 16});
  block.kv_heads = any<std::int64_t>({block.heads, block.heads / 2, 2, 1});
  block.head_dim = block.hidden / block.heads;
  block.activation = chance(0.5) ? Activation::swiglu : Activation::gelu;
  block.norm = chance(0.5) ? NormKind::rms_norm : NormKind::layer_norm;
  block.rotary = chance(0.5);
  block.qkv_bias = chance(0.3);
  block.attention_out_bias = chance(0.3);
  block.ffn_bias = chance(0.3);
  block.ffn = block.hidden * any<std::int64_t>({2, 4});
  LayerShape other = block;  // a second type of block
  other.ffn = block.ffn * 2;
  if (chance(0.3)) {
    other = block;
    other.experts = any<std::int64_t>({4, 8});
    other.experts_per_token = number(1, 2);
    other.shared_ffn = chance(0.3) ? block.ffn : 0;
  }
  const LayerShape embedding{.kind = LayerKind::embedding,
                             .tokens = block.tokens,
                             .hidden = block.hidden,
                             .vocab = any<std::int64_t>({1024, 32000, 50257}),
                             .positions = chance(0.3) ? block.tokens : 0};
  LayerShape head = embedding;
  head.kind = LayerKind::head;
  head.positions = 0;
  head.final_norm = chance(0.7);
  head.norm = block.norm;
  head.tied = chance(0.3);
  Model model{
      .name = "random",
      .family = "braid",
      .types = {{"embedding", embedding}, {"block", block}, {"other", other}, {"head", head}},
      .layers = {0},
      .sequence = block.tokens};
  const double mixed = any<double>({0.0, 0.5, 1.0});
  for (int b = 0; b < blocks; ++b) model.layers.push_back(chance(mixed) ? 2 : 1);
  model.layers.push_back(3);
  return model;
}

std::vector<Strategy> legal_strategies(const LayerShape& shape, int devices,
                                       std::int64_t micro_batch) {
  std::vector<Strategy> legal;
  for (int tp = 1; tp <= devices; ++tp)
    for (int cp = 1; cp * tp <= devices; ++cp) {
      if (devices % (tp * cp) != 0) continue;
      const int dp = devices / tp / cp;
      for (const TensorKind kind : {TensorKind::megatron, TensorKind::ulysses})
        for (int ep = 1; ep <= dp; ++ep)
          for (const Zero zero : {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters})
            for (const Recompute recompute :
                 {Recompute::none, Recompute::selective, Recompute::full}) {
              const Strategy s{.tp = tp,
                               .tp_kind = kind,
                               .cp = cp,
                               .dp = dp,
                               .zero = zero,
                               .ep = ep,
                               .recompute = recompute};
              if (tp == 1 && kind == TensorKind::ulysses) continue;
              if (!strategy_fault(shape, s, micro_batch)) legal.push_back(s);
            }
    }
  return legal;
}

Plan CaseDice::plan() {
  while (true) {
    Plan plan;
    plan.cluster = cluster(12, 4);
    plan.model = model(number(2, 6));
    plan.precision =
        any<Precision>({Precision::bf16, Precision::bf16, Precision::fp32, Precision::fp8});
    plan.gradient_precision =
        plan.precision == Precision::fp32 || chance(0.6) ? Precision::fp32 : Precision::bf16;
    std::vector<int> degrees;
    for (const int p : divisors(plan.cluster.num_devices()))
      if (p <= 6) degrees.push_back(p);
    plan.shape.stages = any(degrees);
    plan.shape.schedule = any<ScheduleKind>({ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                             ScheduleKind::interleaved, ScheduleKind::zero_bubble});
    if (plan.shape.schedule == ScheduleKind::interleaved) plan.shape.chunks = number(1, 3);
    plan.shape.micro_batches =
        plan.shape.chunks > 1 ? plan.shape.stages * number(1, 3) : number(1, 8);
    plan.mesh_order = kMeshOrders[number(0, 2)];
    const int width = plan.cluster.num_devices() / plan.shape.stages;
    plan.global_batch = plan.shape.micro_batches * any<std::int64_t>({1, 2, width, 2 * width});
    if (!choose(plan)) continue;
    try {
      verify(plan, "random plan");
      return plan;
    } catch (const Error&) {  // a stage without a block: again
    }
  }
}

// Cuts and strategies; false where a layer has no legal one.
bool CaseDice::choose(Plan& plan) {
  const int parts = plan.shape.stages * plan.shape.chunks, layers = plan.model.num_layers();
  if (parts > layers) return false;
  std::vector<int> ends;
  for (int layer = 1; layer < layers; ++layer) ends.push_back(layer);
  std::ranges::shuffle(ends, engine_);
  ends.resize(static_cast<std::size_t>(parts - 1));
  std::ranges::sort(ends);
  ends.push_back(layers);
  plan.stages.assign(static_cast<std::size_t>(plan.shape.stages), {});
  for (int part = 0, begin = 0; part < parts; ++part) {
    const int end = ends[static_cast<std::size_t>(part)];
    plan.stages[static_cast<std::size_t>(part % plan.shape.stages)].chunks.push_back({begin, end});
    begin = end;
  }
  const double changes = any<double>({0.0, 0.3, 1.0});
  for (StagePlan& stage : plan.stages)
    for (const int layer : layers_of(stage)) {
      const LayerShape& shape = plan.model.type_of(layer).shape;
      if (!stage.strategies.empty() && !chance(changes) &&
          !strategy_fault(shape, stage.strategies.back(), plan.micro_batch())) {
        stage.strategies.push_back(stage.strategies.back());
        continue;
      }
      const auto legal = legal_strategies(shape, plan.mesh().stage_devices(), plan.micro_batch());
      if (legal.empty()) return false;
      stage.strategies.push_back(any(legal));
    }
  return true;
}

}  // namespace braid::referee
