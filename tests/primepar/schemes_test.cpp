// The usual schemes against their closed forms, on round machines.

#include "planner/primepar/schemes.h"

#include <gtest/gtest.h>

#include "tests/primepar/machines.h"

namespace braid {
namespace {

TEST(Schemes, MegatronsLayerIsTheClosedForm) {
  const PrimeparMachine machine(round_cluster(1, 4), Precision::fp32, kAllOfThePeak);
  const PrimeparTask task = round_task();
  const auto plans = scheme_plans(Scheme::megatron, task, machine);
  ASSERT_EQ(plans.size(), 3U);  // 1, 2 and 4 replicas
  const double t = 8192, h = 1024;
  const LayerTotals& tensor = plans[0].totals;  // 4-way
  EXPECT_NEAR(tensor.all_reduce, 8 * 0.75 * t * h * 4 / 100e9, 1e-12);
  EXPECT_DOUBLE_EQ(tensor.stash, 4 * (4 * t * h + 12 * t * h / 4));
  EXPECT_DOUBLE_EQ(tensor.states, 16 * (12 * h * h / 4 + 4 * h));
  const LayerTotals& data = plans[2].totals;
  EXPECT_EQ(data.all_reduce, 0);
  EXPECT_NEAR(data.gradient_reduce, 1.5 * (12 * h * h + 4 * h) * 4 / 100e9, 1e-12);
}

TEST(Schemes, TheOthersMoveWhatTheSpecificationCounts) {
  const PrimeparMachine machine(round_cluster(1, 4), Precision::fp32, kAllOfThePeak);
  const PrimeparTask task = round_task();
  const double t = 8192, h = 1024, second = 4 / 100e9;
  const auto of = [&](Scheme scheme) { return scheme_plans(scheme, task, machine).front().totals; };
  EXPECT_NEAR(of(Scheme::megatron_sequence).all_reduce, 10 * 0.75 * t * h * second, 1e-12);
  EXPECT_NEAR(of(Scheme::summa).all_reduce, (21 * t * h + 36 * h * h) / 4 * second, 1e-12);
  const LayerTotals zero = of(Scheme::zero3);
  EXPECT_NEAR(zero.ring_hidden + zero.ring_exposed, 36 * 0.75 * (h * h + h / 3) * second, 1e-9);
  EXPECT_DOUBLE_EQ(zero.stash, 4 * 16 * t * h / 4);
}

}  // namespace
}  // namespace braid
