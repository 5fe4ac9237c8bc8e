#include "runtime/parallel/flat_buffer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>

#include "runtime/comm/in_process.h"
#include "tests/support/tensors.h"

namespace braid::parallel {
namespace {

constexpr Zero kZeros[] = {Zero::none, Zero::optimizer, Zero::gradients, Zero::parameters};
constexpr std::int64_t kElements = 13;  // no number of replicas divides it

Numerics fp64() { return fp64_numerics(at::kCPU); }
Numerics bf16() { return numerics_of(Precision::bf16, Precision::fp32, at::kCPU); }

std::vector<ElementRun> two_runs() {
  return {{.begin = 0, .end = 9}, {.begin = 9, .end = kElements, .decays = false}};
}

GroupPtr everyone(comm::Group& world) {
  std::vector<int> members(static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) members[static_cast<std::size_t>(r)] = r;
  return world.subgroup(members, "replicas");
}

at::Tensor values(double first) {
  return at::arange(kElements, at::TensorOptions(at::kDouble)).add(first);
}

// Calls check(world, zero, buffer) on every rank, for every kind of ZeRO and number of replicas.
template <class Check>
void on_all(const Numerics& numerics, Check check) {
  for (const int ranks : {1, 2, 3, 4})
    for (const Zero zero : kZeros)
      comm::run_in_process(ranks, [&](comm::Group& world) {
        SCOPED_TRACE(name_of(zero) + " on " + std::to_string(ranks));
        FlatBuffer buffer("layer", two_runs(), zero, everyone(world), numerics);
        check(world, zero, buffer);
      });
}

at::Tensor gathered(FlatBuffer& buffer) {
  buffer.wait_weights();
  at::Tensor copy = buffer.weights().narrow(0, 0, buffer.elements()).clone();
  buffer.release_weights();
  return copy;
}

// Adds one micro-batch's gradient: `factor` times 0, 1, 2, …; padding gets NaN where there is some.
void add_gradient(FlatBuffer& buffer, double factor) {
  buffer.begin_gradients();
  const ops::Sum whole = buffer.gradients(0, kElements);
  if (whole.fresh)
    whole.value.copy_(values(0).mul(factor));
  else
    whole.value.add_(values(0).mul(factor));
  const std::int64_t padded = buffer.weights().defined() ? buffer.weights().numel() : kElements;
  if (padded > kElements) buffer.gradients(kElements, padded).value.fill_(NAN);
  buffer.end_gradients();
}

at::Tensor owned_part(const FlatBuffer& buffer, const at::Tensor& owned, const ElementRun& run) {
  return owned.narrow(0, run.begin - buffer.owned_begin(), run.end - run.begin);
}

TEST(FlatBuffer, InitialValuesComeBackWhole) {
  on_all(fp64(), [](comm::Group&, Zero, FlatBuffer& buffer) {
    buffer.initialise(values(1));
    EXPECT_TRUE(identical(gathered(buffer), values(1)));
    EXPECT_TRUE(identical(buffer.whole_master(), values(1)));
  });
}

TEST(FlatBuffer, GradientsOfMicroBatchesAndReplicasAddUp) {
  on_all(fp64(), [](comm::Group& world, Zero, FlatBuffer& buffer) {
    for (int step = 0; step < 2; ++step) {
      double total = 0;
      for (int micro_batch = 1; micro_batch <= 3; ++micro_batch) {
        add_gradient(buffer, world.rank() + 10 * micro_batch + step);
        for (int r = 0; r < world.size(); ++r) total += r + 10 * micro_batch + step;
      }
      if (step == 1) buffer.start_reduction();  // ahead of time, or not at all
      buffer.reduce_gradients();
      for (const ElementRun& run : buffer.owned())
        EXPECT_TRUE(identical(owned_part(buffer, buffer.owned_gradients(), run),
                              values(0).mul(total).slice(0, run.begin, run.end)));
      buffer.drop_gradients();
    }
  });
}

TEST(FlatBuffer, GradientsThatNobodyTouchedAreZero) {
  on_all(fp64(), [](comm::Group& world, Zero, FlatBuffer& buffer) {
    for (int step = 0; step < 2; ++step) {
      buffer.begin_gradients();
      EXPECT_TRUE(buffer.gradients(1, 3).fresh);
      buffer.gradients(1, 3).value.fill_(2);
      EXPECT_FALSE(buffer.gradients(1, 3).fresh);
      // Together with what was touched: no longer fresh, and zero where nobody wrote.
      const ops::Sum both = buffer.gradients(2, 5);
      EXPECT_FALSE(both.fresh);
      EXPECT_TRUE(identical(both.value, at::tensor({2.0, 0.0, 0.0})));
      buffer.end_gradients();
      buffer.reduce_gradients();
      at::Tensor expected = at::zeros({kElements}, at::kDouble);
      expected.narrow(0, 1, 2).fill_(2.0 * world.size());
      for (const ElementRun& run : buffer.owned())
        EXPECT_TRUE(identical(owned_part(buffer, buffer.owned_gradients(), run),
                              expected.slice(0, run.begin, run.end)));
      buffer.drop_gradients();
    }
  });
}

TEST(FlatBuffer, WhatOwnersChangeIsPublishedToAll) {
  for (const Numerics& numerics : {fp64(), bf16()})
    on_all(numerics, [&](comm::Group&, Zero, FlatBuffer& buffer) {
      // 1 + 1/512 is no bf16: the master keeps it, the weights are rounded.
      buffer.initialise(values(1).to(numerics.state));
      const at::Tensor master = buffer.owned_master().clone();
      for (const ElementRun& run : buffer.owned()) owned_part(buffer, master, run).add_(1.0 / 512);
      buffer.set_owned_master(master);
      buffer.share_weights();
      const at::Tensor expected = values(1 + 1.0 / 512);
      EXPECT_TRUE(identical(buffer.whole_master(), expected.to(numerics.state)));
      EXPECT_TRUE(identical(gathered(buffer), expected.to(numerics.compute)));
    });
}

TEST(FlatBuffer, PaddingIsOwnedByNobodyAndNeverLeaks) {
  on_all(fp64(), [](comm::Group&, Zero zero, FlatBuffer& buffer) {
    buffer.initialise(values(1));
    add_gradient(buffer, 1);
    buffer.reduce_gradients();
    std::int64_t last = buffer.owned_begin();
    for (const ElementRun& run : buffer.owned()) {
      EXPECT_EQ(run.begin, last) << "owned runs are neighbours";
      last = run.end;
      EXPECT_FALSE(owned_part(buffer, buffer.owned_gradients(), run).isnan().any().item().toBool());
    }
    EXPECT_LE(last, kElements);
    const at::Tensor master = buffer.owned_master().clone();
    const std::int64_t padding = buffer.owned_begin() + master.numel() - last;
    if (padding > 0) master.narrow(0, last - buffer.owned_begin(), padding).fill_(NAN);
    buffer.set_owned_master(master);
    buffer.share_weights();
    EXPECT_TRUE(identical(gathered(buffer), values(1))) << name_of(zero);
    EXPECT_TRUE(identical(buffer.whole_master(), values(1)));
  });
}

TEST(FlatBuffer, EveryElementHasOneOwnerThatCounts) {
  for (const Zero zero : kZeros) {
    std::vector<std::atomic<int>> counted(kElements);
    comm::run_in_process(3, [&](comm::Group& world) {
      const FlatBuffer buffer("layer", two_runs(), zero, everyone(world), fp64());
      for (const ElementRun& run : buffer.owned())
        if (buffer.counts(run))
          for (std::int64_t i = run.begin; i < run.end; ++i) ++counted[static_cast<std::size_t>(i)];
    });
    for (const auto& times : counted) EXPECT_EQ(times, 1) << name_of(zero);
  }
}

// Two tensor ranks by three replicas: the first run is the same on both tensor ranks, the second
// each one's own.
TEST(FlatBuffer, SharedElementsAreSummedOverTensorRanksAndCountedOnce) {
  for (const Zero zero : kZeros) {
    std::atomic<std::int64_t> counted = 0;
    comm::run_in_process(6, [&](comm::Group& world) {
      const int tensor_rank = world.rank() % 2, replica = world.rank() / 2;
      const GroupPtr tensor = world.split(replica, 0, "tensor");
      const GroupPtr replicas = world.split(tensor_rank, 0, "replicas");
      std::vector<ElementRun> runs = two_runs();
      runs[0].sharing = tensor.get();
      FlatBuffer buffer("layer", runs, zero, replicas, fp64());
      add_gradient(buffer, world.rank() + 1);
      buffer.reduce_gradients();
      for (const ElementRun& run : buffer.owned()) {
        // 1 + 2 + … + 6 where shared, else 1 + 3 + 5 or 2 + 4 + 6.
        const double total = run.sharing != nullptr ? 21 : 9 + 3 * tensor_rank;
        EXPECT_TRUE(identical(owned_part(buffer, buffer.owned_gradients(), run),
                              values(0).mul(total).slice(0, run.begin, run.end)))
            << name_of(zero);
        if (buffer.counts(run)) counted += run.end - run.begin;
      }
    });
    EXPECT_EQ(counted, 9 + 2 * 4) << name_of(zero);
  }
}

TEST(FlatBuffer, EachKindOfZeroStoresWhatItPromises) {
  comm::run_in_process(4, [](comm::Group& world) {
    struct Case {
      Zero zero;
      std::int64_t weights, gradients, optimizer;  // elements
    };
    // 13 elements are four shares of 4; half a master and two moments.
    const Case cases[] = {{Zero::none, 13, 13, 13},
                          {Zero::optimizer, 16, 16, 4},
                          {Zero::gradients, 16, 4, 4},
                          {Zero::parameters, 4, 4, 4}};
    for (const Case& c : cases) {
      const FlatBuffer buffer("layer", two_runs(), c.zero, everyone(world), bf16());
      const FlatBuffer::Usage use = buffer.bytes();
      EXPECT_EQ(use.weights, 2 * c.weights) << name_of(c.zero);
      EXPECT_EQ(use.gradients, 4 * c.gradients) << name_of(c.zero);
      EXPECT_EQ(use.optimizer, (2 + 4 + 4) * c.optimizer) << name_of(c.zero);
    }
  });
}

}  // namespace
}  // namespace braid::parallel
