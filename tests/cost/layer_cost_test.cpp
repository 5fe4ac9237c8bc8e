// What Braid's own model says of one layer: each fact of a strategy, against the layer's parameters
// and FLOPs. One decoder block of 201 M parameters on A100s, 300 GB/s between any two.

#include <gtest/gtest.h>

#include <cmath>

#include "planner/cost/assumptions.h"
#include "planner/cost/make_cost_model.h"

namespace braid {
namespace {

constexpr int kBlock = 1;  // the type that is priced

Model model() {
  LayerShape block;
  block.tokens = 2048;
  block.hidden = 4096;
  block.attention = AttentionKind::causal;
  block.heads = 32;
  block.kv_heads = 32;
  block.head_dim = 128;
  block.ffn = 16384;
  const LayerShape embedding{
      .kind = LayerKind::embedding, .tokens = 2048, .hidden = 4096, .vocab = 32000};
  LayerShape head = embedding;
  head.kind = LayerKind::head;
  return {.name = "one block",
          .family = "braid",
          .types = {{"embedding", embedding}, {"block", block}, {"head", head}},
          .layers = {0, 1, 1, 1, 1, 2},
          .sequence = 2048};
}

Cluster cluster(int devices) {
  const Link link{BytesPerSecond(300e9), Seconds(3e-6)};
  return {.name = "one node",
          .device_types = {{.name = "A100-80G",
                            .peak_bf16 = FlopsPerSecond(312e12),
                            .peak_fp32 = FlopsPerSecond(19.5e12),
                            .memory = Bytes(std::int64_t{80} << 30),
                            .memory_bandwidth = BytesPerSecond(2039e9)}},
          .groups = {{.count = 1, .device_type = 0, .devices = devices, .inside = link}},
          .between = link};
}

class LayerCostTest : public testing::Test {
 protected:
  StageSite site(int micro_batches = 4, int stages = 1, int stage = 0) const {
    return {{kDevices, stages, MeshOrder::pp_dp_cp_tp},
            {ScheduleKind::one_f_one_b, stages, micro_batches, 1},
            stage,
            kMicroBatch};
  }
  LayerCost price(const Strategy& s, const StageSite& where) const {
    return cost_->layer(kBlock, s, where);
  }
  LayerCost price(const Strategy& s) const { return price(s, site()); }
  const LayerShape& shape() const { return model_.types[kBlock].shape; }
  double count() const { return static_cast<double>(parameters(shape())); }

  static constexpr int kDevices = 8;
  static constexpr std::int64_t kMicroBatch = 8;
  const Model model_ = model();
  const Cluster cluster_ = cluster(kDevices);
  // Gradients in bf16 too, so that a parameter has 16 bytes in all.
  const std::unique_ptr<CostModel> cost_ =
      make_cost_model({.gradient_precision = Precision::bf16}, model_, cluster_, nullptr);
};

void expect_bytes(Bytes bytes, double expected, const std::string& fact) {
  EXPECT_NEAR(static_cast<double>(bytes.value()), expected, 2) << fact;
}

TEST_F(LayerCostTest, ZeroLevelsDivideFourteenBytesAParameter) {
  struct Case {
    const char* fact;
    Zero zero;
    double weights, gradients, optimizer;  // bytes a parameter
  };
  constexpr Case kCases[] = {
      {"plain data parallelism keeps all", Zero::none, 2, 2, 10},
      {"ZeRO-1 divides the optimizer", Zero::optimizer, 2, 2, 10.0 / 8},
      {"ZeRO-2 the gradients too", Zero::gradients, 2, 2.0 / 8, 10.0 / 8},
      {"ZeRO-3 everything", Zero::parameters, 2.0 / 8, 2.0 / 8, 10.0 / 8},
  };
  Bytes before{std::numeric_limits<std::int64_t>::max()};
  for (const Case& c : kCases) {
    const LayerMemory memory = price({.dp = 8, .zero = c.zero}).memory;
    expect_bytes(memory.weights, c.weights * count(), c.fact);
    expect_bytes(memory.gradients, c.gradients * count(), c.fact);
    expect_bytes(memory.optimizer, c.optimizer * count(), c.fact);
    EXPECT_LT(memory.states(), before) << c.fact;
    before = memory.states();
  }
}

TEST_F(LayerCostTest, Fp32GradientsTakeTwoBytesMore) {
  const auto fp32 = make_cost_model({}, model_, cluster_, nullptr);
  expect_bytes(fp32->layer(kBlock, {.dp = 8}, site()).memory.states(), 16 * count(), "2 + 4 + 10");
}

TEST_F(LayerCostTest, ForwardIsItsFlopsAtTheAssumedEfficiency) {
  const Assumptions a;
  const LayerFlops flops = forward_flops(shape());
  const double traffic = static_cast<double>(forward_traffic(shape(), Precision::bf16).value());
  const double expected = flops.matmul.value() / (312e12 * a.matmul_efficiency) +
                          flops.attention.value() / (312e12 * a.attention_efficiency) +
                          traffic / (2039e9 * a.memory_efficiency) + a.layer_overhead.value();
  // Eight samples over eight replicas: one each.
  const LayerTime time = price({.dp = 8}).time;
  EXPECT_NEAR(time.forward_compute, expected, 1e-12);
  EXPECT_NEAR(time.backward_weight_compute, flops.matmul.value() / (312e12 * a.matmul_efficiency),
              1e-12);
  EXPECT_GT(time.backward_input_compute, time.forward_compute) << "attention runs its scores again";
}

TEST_F(LayerCostTest, TensorParallelismSplitsComputeAndStatesAndTalks) {
  const LayerCost data = price({.dp = 8});
  const LayerCost tensor = price({.tp = 8});
  // Eight samples on an eighth of the layer is as much work as one sample on all of it.
  EXPECT_NEAR(tensor.time.forward_compute, data.time.forward_compute, 1e-9);
  EXPECT_EQ(data.time.forward_tensor, 0);
  EXPECT_GT(tensor.time.forward_tensor, 0);
  EXPECT_LT(tensor.memory.weights, scaled(data.memory.weights, 1.01 / 8));
  // Two gathers and two scatters, in backward four and two, of 8 samples · 2048 · 4096 · 2 bytes:
  // 7/8 of it at 240 GB/s. All of forward's and four of backward's go in two chunks: 8 and 10 times
  // 7 steps.
  const double whole = 7.0 / 8 * 8.0 * 2048 * 4096 * 2 / 240e9, step = 7 * 3e-6;
  const double forward = 4 * whole + 8 * step, backward = 6 * whole + 10 * step;
  EXPECT_NEAR(tensor.time.forward_tensor + tensor.time.backward_tensor + tensor.time.hidden_tensor,
              forward + backward, 1e-9);
  EXPECT_LT(tensor.time.forward_tensor, forward);
  EXPECT_LT(tensor.time.backward_tensor, tensor.time.forward_tensor)
      << "weight gradients run beside it";
}

TEST_F(LayerCostTest, OneReplicaReducesNothing) {
  const LayerTime alone = price({.tp = 8}).time;
  EXPECT_EQ(alone.reduce, 0);
  EXPECT_EQ(alone.regather, 0);
  EXPECT_EQ(alone.forward_gather, 0);
  EXPECT_EQ(alone.backward_gather, 0);
  EXPECT_GT(price({.dp = 8}).time.reduce, 0);
  // Under Ulysses all eight hold the parameters.
  EXPECT_GT(price({.tp = 8, .tp_kind = TensorKind::ulysses}).time.reduce, 0);
}

TEST_F(LayerCostTest, ZeroThreeGathersInEveryPass) {
  const LayerTime plain = price({.dp = 8}).time;
  const LayerTime sharded = price({.dp = 8, .zero = Zero::parameters}).time;
  EXPECT_EQ(plain.forward_gather, 0);
  EXPECT_GT(sharded.forward_gather, 0);
  EXPECT_GT(sharded.backward_gather, 0);
  EXPECT_EQ(sharded.regather, 0) << "the next forward gathers anyway";
  EXPECT_GT(price({.dp = 8, .zero = Zero::optimizer}).time.regather, 0);
  EXPECT_LT(sharded.update, plain.update / 7) << "an eighth of the parameters is updated";
  EXPECT_GT(sharded.micro_batch(), plain.micro_batch());
}

TEST_F(LayerCostTest, ZeroTwoScattersOnceForEachMicroBatch) {
  const Strategy s{.dp = 8, .zero = Zero::gradients};
  EXPECT_GT(price(s, site(4)).time.backward_gather, 0);
  EXPECT_EQ(price(s, site(1)).time.backward_gather, 0) << "once is at the end";
  EXPECT_GT(price(s, site(1)).time.reduce, 0);
}

TEST_F(LayerCostTest, RecomputationTradesTimeForMemory) {
  const LayerCost none = price({.dp = 8});
  const LayerCost selective = price({.dp = 8, .recompute = Recompute::selective});
  const LayerCost full = price({.dp = 8, .recompute = Recompute::full});
  EXPECT_EQ(none.time.recompute, 0);
  EXPECT_EQ(full.time.recompute, full.time.forward_compute);
  EXPECT_GT(selective.time.recompute, 0);
  EXPECT_LT(selective.time.recompute, full.time.recompute);
  EXPECT_LT(selective.memory.activations, none.memory.activations);
  EXPECT_LT(full.memory.activations, selective.memory.activations);
  EXPECT_GT(full.memory.workspace, none.memory.workspace) << "one layer's activations come back";
  EXPECT_EQ(full.memory.activations, Bytes(std::int64_t{2048} * 4096 * 2)) << "the input alone";
  EXPECT_EQ(full.memory.states(), none.memory.states());
}

TEST_F(LayerCostTest, ActivationsFollowTheSamplesAndTheSplit) {
  const Bytes one = price({.dp = 8}).memory.activations;     // a sample
  const Bytes tensor = price({.tp = 8}).memory.activations;  // eight samples, an eighth of each
  const Bytes context = price({.cp = 8}).memory.activations;
  EXPECT_EQ(tensor, one);
  EXPECT_EQ(context, one);
  StageSite twice = site();
  twice.micro_batch = 16;
  EXPECT_EQ(price({.dp = 8}, twice).memory.activations, 2 * one);
}

TEST_F(LayerCostTest, SharesOfZeroArePaddedToWholeElements) {
  const Cluster three = cluster(3);
  const auto cost = make_cost_model({}, model_, three, nullptr);
  const StageSite where{{3, 1, MeshOrder::pp_dp_cp_tp}, {}, 0, 3};
  const std::int64_t all_elements = parameters(shape());
  ASSERT_EQ(all_elements % 3, 1);
  const std::int64_t share = (all_elements + 2) / 3;
  const LayerMemory one = cost->layer(kBlock, {.dp = 3, .zero = Zero::optimizer}, where).memory;
  EXPECT_EQ(one.weights, Bytes(std::int64_t{2} * 3 * share));
  EXPECT_EQ(one.gradients, Bytes(std::int64_t{4} * 3 * share));
  EXPECT_EQ(one.optimizer, Bytes(10 * share));
  const LayerMemory all = cost->layer(kBlock, {.dp = 3, .zero = Zero::parameters}, where).memory;
  EXPECT_EQ(all.weights, Bytes(2 * share));
  EXPECT_EQ(all.gradients, Bytes(4 * share));
}

TEST_F(LayerCostTest, ATiedHeadOfSeveralDevicesCopiesItsRows) {
  constexpr int kHead = 2;
  Model tied = model_;
  tied.types[kHead].shape.tied = true;
  const Strategy s{.tp = 4, .dp = 2, .zero = Zero::parameters};
  const auto several = make_cost_model({}, tied, cluster_, nullptr);
  const LayerCost copy = several->layer(kHead, s, site());
  const std::int64_t rows = 32000 / 4;
  EXPECT_EQ(copy.memory.weights, Bytes(2 * rows * 4096)) << "ZeRO leaves it alone";
  EXPECT_EQ(copy.memory.gradients, Bytes(4 * rows * 4096));
  EXPECT_EQ(copy.memory.optimizer, Bytes()) << "the embedding is updated";
  const LayerCost own = cost_->layer(kHead, s, site());
  EXPECT_LT(copy.time.update, own.time.update);
  const Strategy half{.tp = 4};
  EXPECT_GT(several->layer(kHead, half, site(4, 2, 1)).time.reduce, 0) << "its gradient travels";
  EXPECT_EQ(cost_->layer(kHead, half, site(4, 2, 1)).time.reduce, 0);

  const Cluster alone = cluster(1);
  const auto one = make_cost_model({}, tied, alone, nullptr);
  const StageSite where{{1, 1, MeshOrder::pp_dp_cp_tp}, {}, 0, 8};
  EXPECT_EQ(one->layer(kHead, {}, where).memory.states(), Bytes()) << "it reads the table itself";
}

TEST_F(LayerCostTest, EarlierStagesHoldMoreMicroBatches) {
  const Strategy s{.dp = 2};
  const LayerMemory memory = price(s, site(8, 4, 0)).memory;
  for (int stage = 0; stage < 4; ++stage) {
    const Bytes resident = cost_->resident(memory, site(8, 4, stage));
    const Bytes held = (4 - stage) * memory.activations;
    EXPECT_EQ(resident, memory.states() + memory.constants + held + cost_->slack(held))
        << "stage " << stage;
  }
  const Bytes two = 2 * memory.activations;
  EXPECT_EQ(cost_->resident(memory, site(2, 4, 0)),
            memory.states() + memory.constants + two + cost_->slack(two))
      << "no more than there are";
  EXPECT_EQ(cost_->slack(Bytes(1000)), Bytes(100));
}

TEST_F(LayerCostTest, ChangesOfLayoutCostTransfersAndNoneIsFree) {
  const ActivationLayout data{.dp = 8, .cp = 1, .tp = 1};
  const ActivationLayout tensor{.dp = 1, .cp = 1, .tp = 8};
  EXPECT_EQ(cost_->redistribute(kBlock, data, data, site()), 0);
  const double change = cost_->redistribute(kBlock, data, tensor, site());
  // A device's sample is spread over all eight: 7/8 of 2048 · 4096 · 2 bytes at 240 GB/s, 3 steps.
  EXPECT_NEAR(change, 7.0 / 8 * 2048 * 4096 * 2 / 240e9 + 3 * 3e-6, 1e-9);
  EXPECT_EQ(cost_->redistribute(kBlock, tensor, data, site()), change);
}

TEST_F(LayerCostTest, TheLimitIsABudgetAndTheDeviceTheMost) {
  const Bytes all{std::int64_t{80} << 30};
  EXPECT_EQ(cost_->budget(Bytes(), site()), all);
  EXPECT_EQ(cost_->budget(Bytes(1 << 30), site()), Bytes(1 << 30));
  EXPECT_EQ(cost_->budget(2 * all, site()), all);
  EXPECT_EQ(cost_->transfer(kBlock, site()), Seconds()) << "one stage hands nothing on";
  EXPECT_GT(cost_->transfer(kBlock, site(8, 4, 0)), Seconds());
}

}  // namespace
}  // namespace braid
