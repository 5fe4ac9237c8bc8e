// Costs worked out by hand on round machines.

#include "planner/primepar/operator_cost.h"

#include <gtest/gtest.h>

#include "tests/primepar/machines.h"
#include "tests/support/files.h"

namespace braid {
namespace {

// fc1: 8192 tokens, 1024 → 4096.
Operator fc1() { return layer_graph(round_task()).operators[9]; }

Partition sequence(std::vector<Primitive> primitives) { return {std::move(primitives)}; }
constexpr Primitive kColumns{.dim = Dim::columns};
constexpr Primitive kInner{.dim = Dim::inner};
constexpr Primitive kSamples{.dim = Dim::batch};
constexpr Primitive square(Rotation rotation) {
  return {.dim = Dim::rows, .q = 2, .rotation = rotation};
}

class LinearCost : public testing::Test {
 protected:
  LinearCost() : machine_(round_cluster(2, 4), Precision::fp32, kAllOfThePeak) {}
  OperatorCost cost(std::vector<Primitive> primitives) const {
    return operator_cost(fc1(), sequence(std::move(primitives)), round_task(), machine_);
  }
  PrimeparMachine machine_;
};

// Each device: 4096 tokens, 512 inner, 1024 columns a step.
constexpr double kStep = 2.0 * 4096 * 512 * 1024 / 1e13;
constexpr double kInput = 4096 * 512 * 4, kWeight = 512 * 1024 * 4, kOutput = 4096 * 1024 * 4;

TEST_F(LinearCost, ThePublishedSquareHidesItsTransfersInsideANode) {
  const OperatorCost c = cost({kColumns, square(Rotation::paper)});
  EXPECT_DOUBLE_EQ(c.compute, 6 * kStep);
  // F: I and W. B: dO and W, then W. G: I and dO, then dW.
  const double moved = 2 * kInput + 2 * kOutput + 4 * kWeight;
  EXPECT_NEAR(c.ring_hidden, moved / 100e9, 1e-15);
  EXPECT_EQ(c.ring_exposed, 0);
  // dI is summed over the two halves of K, one device a node: all of it over 10 GB/s.
  EXPECT_NEAR(c.all_reduce, kInput / 10e9, 1e-15);
  EXPECT_EQ(c.gradient_reduce, 0);
  EXPECT_DOUBLE_EQ(c.states, 512 * 1024 * 16);
  EXPECT_DOUBLE_EQ(c.stash, kInput);
  EXPECT_DOUBLE_EQ(c.workspace, kInput + kWeight + kOutput);
}

TEST_F(LinearCost, ThePairSendsTwoWeightBlocksLess) {
  const OperatorCost paper = cost({kColumns, square(Rotation::paper)});
  for (const Rotation rotation : {Rotation::plus, Rotation::minus}) {
    const OperatorCost pair = cost({kColumns, square(rotation)});
    EXPECT_NEAR(paper.ring_hidden - pair.ring_hidden, 2 * kWeight / 100e9, 1e-15);
    EXPECT_DOUBLE_EQ(pair.time(), paper.time());
  }
}

TEST_F(LinearCost, ASquareAcrossNodesWaitsForItsSlowerLink) {
  // r is the node, c a device in it, K cut inside: rows of weights cross, inputs do not.
  const OperatorCost c = cost({square(Rotation::plus), kColumns});
  // F: I near, W far. B: W from (r-1, c+1) far, dO near. G: both come from another row.
  const double f = kWeight / 10e9, b = kWeight / 10e9, g = (kInput + kOutput) / 10e9;
  EXPECT_NEAR(c.ring_hidden, f + b + kStep, 1e-15);
  EXPECT_NEAR(c.ring_exposed, g - kStep, 1e-15);
}

TEST_F(LinearCost, EachCutHasItsAllReduce) {
  struct Case {
    const char* fact;
    std::vector<Primitive> primitives;
    double all_reduce, gradient_reduce;
  };
  // Two of three cuts inside a node: groups of four there, at 100 GB/s, move 3/2 of the buffer.
  const double tokens = 8192, inside = 1.5 * 4 / 100e9, across = 1.0 * 4 / 10e9;
  const Case cases[] = {
      {"inner sums the output",
       {kSamples, kInner, kInner},
       tokens / 2 * 4096 * inside,
       256.0 * 4096 * across},
      {"columns sum the input's gradient",
       {kSamples, kColumns, kColumns},
       tokens / 2 * 1024 * inside,
       1024.0 * 1024 * across},
      {"samples sum the weights' gradient",
       {kColumns, kSamples, kSamples},
       tokens / 4 * 1024 * across,
       1024.0 * 2048 * inside},
  };
  for (const Case& c : cases) {
    const OperatorCost got = cost(c.primitives);
    EXPECT_NEAR(got.all_reduce, c.all_reduce, 1e-12) << c.fact;
    EXPECT_NEAR(got.gradient_reduce, c.gradient_reduce, 1e-12) << c.fact;
    EXPECT_EQ(got.ring_hidden + got.ring_exposed, 0) << c.fact;
  }
}

TEST_F(LinearCost, AccumulationSharesTheGradientsReduction) {
  PrimeparTask task = round_task();
  const Partition p = sequence({kSamples, kSamples, kSamples});
  const double once = operator_cost(fc1(), p, task, machine_).gradient_reduce;
  task.accumulate = 4;
  EXPECT_DOUBLE_EQ(operator_cost(fc1(), p, task, machine_).gradient_reduce, once / 4);
}

TEST(LinearWorkspace, HomeCopiesNeedOneMoreBufferFromFourOn) {
  const PrimeparMachine machine(round_cluster(1, 16), Precision::fp32, kAllOfThePeak);
  const auto workspace = [&](Rotation rotation) {
    const Partition p = sequence({{.dim = Dim::rows, .q = 4, .rotation = rotation}});
    return operator_cost(fc1(), p, round_task(), machine).workspace;
  };
  EXPECT_DOUBLE_EQ(workspace(Rotation::plus), 2 * workspace(Rotation::paper));
}

TEST(AttentionCost, KeyHeadsBeyondTheirNumberAreCopiesWhoseGradientsAreSummed) {
  PrimeparTask task = round_task();
  task.block.kv_heads = 2;
  const PrimeparMachine machine(round_cluster(1, 4), Precision::fp32, kAllOfThePeak);
  const Operator scores = layer_graph(task).operators[3];
  const Partition heads = sequence({{.dim = Dim::heads}, {.dim = Dim::heads}});
  const OperatorCost grouped = operator_cost(scores, heads, task, machine);
  const double key = 8 * 1024 * 64 * 4;  // one head of keys, all tokens
  EXPECT_NEAR(grouped.all_reduce, key / 100e9, 1e-15) << "two devices share a key head";
  EXPECT_DOUBLE_EQ(grouped.stash, 4 * key + key) << "four query heads and their key head";
  task.block.kv_heads = 4;
  EXPECT_EQ(operator_cost(scores, heads, task, machine).all_reduce, 0);
}

TEST(Machine, ACollectiveAcrossNodesUsesThePortsOfItsMembersOrOne) {
  const PrimeparMachine members(round_cluster(2, 4), Precision::fp32, kAllOfThePeak);
  const PrimeparMachine one(round_cluster(2, 4), Precision::fp32, kAllOfThePeak,
                            NetworkShare::of_one);
  struct Case {
    const char* fact;
    std::vector<int> bits;
    double of_members, of_one;  // seconds of a gigabyte
  };
  const Case cases[] = {
      {"inside a node there is no network", {1, 2}, 1.5 / 100, 1.5 / 100},
      {"one member a node has one port either way", {0}, 1.0 / 10, 1.0 / 10},
      {"two members a node have two", {0, 2}, 1.5 / 20, 1.5 / 10},
      {"four have four", {0, 1, 2}, 1.75 / 40, 1.75 / 10},
  };
  for (const Case& c : cases) {
    EXPECT_NEAR(members.all_reduce(1e9, c.bits), c.of_members, 1e-9) << c.fact;
    EXPECT_NEAR(one.all_reduce(1e9, c.bits), c.of_one, 1e-9) << c.fact;
  }
}

TEST(Machine, RefusesWhatHasNoDeviceBits) {
  const auto refused = [](const Cluster& cluster) {
    return mistake_of("a machine without device bits",
                      [&] { const PrimeparMachine machine(cluster, Precision::bf16); });
  };
  EXPECT_TRUE(holds(refused(round_cluster(3, 4)).what, "12 devices are no power of two"));
  EXPECT_TRUE(
      holds(refused(round_cluster(32, 4)).what, "128 devices are no power of two up to 64"));
  EXPECT_TRUE(holds(refused(round_cluster(1, 128)).what, "128 devices"));
  Cluster mixed = round_cluster(1, 4);
  mixed.groups.push_back(mixed.groups.front());
  mixed.groups.back().inside.bandwidth = 2.0 * mixed.groups.back().inside.bandwidth;
  EXPECT_TRUE(holds(refused(mixed).what, "the nodes differ"));
}

}  // namespace
}  // namespace braid
