#include "planner/cost/analytic_layer.h"

#include <gtest/gtest.h>

#include "planner/cost/make_cost_model.h"

namespace braid {
namespace {

DeviceType a100() {
  return {.name = "A100-80G",
          .peak_bf16 = FlopsPerSecond(312e12),
          .peak_fp32 = FlopsPerSecond(19.5e12),
          .memory = Bytes(std::int64_t{80} << 30),
          .memory_bandwidth = BytesPerSecond(2039e9)};
}

LayerShape llama_block() {
  return {.kind = LayerKind::block,
          .tokens = 4096,
          .hidden = 4096,
          .attention = AttentionKind::causal,
          .heads = 32,
          .kv_heads = 32,
          .head_dim = 128,
          .ffn = 11008,
          .activation = Activation::swiglu,
          .norm = NormKind::rms_norm};
}

TEST(AnalyticLayer, FindsTheDeviceInTheClustersName) {
  const DeviceModel found = device_model_of(a100(), Precision::bf16);
  EXPECT_EQ(found.name, "A100");
  EXPECT_EQ(found.bandwidth, 2039e9);  // the cluster's own figure
  DeviceType unknown = a100();
  unknown.name = "abacus";
  EXPECT_GT(device_model_of(unknown, Precision::bf16).processors, 0);
}

TEST(AnalyticLayer, IsNeverFasterThanThePeak) {
  const LayerShape shape = llama_block();
  const DeviceModel device = device_model_of(a100(), Precision::bf16);
  const double flops = forward_flops(shape).total().value();
  for (const int tp : {1, 2, 4, 8}) {
    const AnalyticTimes t = analytic_layer(device, shape, {.tp = tp}, 1, Precision::bf16);
    EXPECT_GT(t.forward, flops / tp / 312e12);
    EXPECT_GT(t.backward_input + t.backward_weight, 2 * flops / tp / 312e12);
  }
}

TEST(AnalyticLayer, Fp8IsForTheProductsOfBlocksAlone) {
  const auto forward = [](const LayerShape& shape, Precision precision) {
    DeviceType device = a100();
    device.peak_fp8 = 2 * device.peak_bf16;  // an imagined one
    return analytic_layer(device_model_of(device, precision), shape, {}, 1, precision);
  };
  const AnalyticTimes wide = forward(llama_block(), Precision::bf16);
  const AnalyticTimes narrow = forward(llama_block(), Precision::fp8);
  EXPECT_LT(narrow.backward_weight, wide.backward_weight);
  EXPECT_EQ(narrow.attention, wide.attention);
  const LayerShape head{.kind = LayerKind::head, .tokens = 4096, .hidden = 4096, .vocab = 32000};
  EXPECT_EQ(forward(head, Precision::fp8).forward, forward(head, Precision::bf16).forward);
}

TEST(AnalyticLayer, NarrowSlicesLoseEfficiency) {
  const DeviceModel device = device_model_of(a100(), Precision::bf16);
  const AnalyticTimes whole = analytic_layer(device, llama_block(), {}, 1, Precision::bf16);
  const AnalyticTimes slice = analytic_layer(device, llama_block(), {.tp = 8}, 1, Precision::bf16);
  EXPECT_GT(8 * slice.forward, whole.forward);
}

TEST(AnalyticLayer, UlyssesKeepsItsMatricesWhole) {
  // The same products on an eighth of the tokens: as many FLOPs, other shapes.
  const DeviceModel device = device_model_of(a100(), Precision::bf16);
  const Strategy ulysses{.tp = 8, .tp_kind = TensorKind::ulysses};
  const AnalyticTimes t = analytic_layer(device, llama_block(), ulysses, 1, Precision::bf16);
  const AnalyticTimes m = analytic_layer(device, llama_block(), {.tp = 8}, 1, Precision::bf16);
  EXPECT_NE(t.forward, m.forward);
  EXPECT_NEAR(t.forward / m.forward, 1, 0.3);
}

}  // namespace
}  // namespace braid
