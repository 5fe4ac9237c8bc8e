// The same run twice has the same bits: every family, on one rank of each device and on several on
// CPUs. Where a GPU is, the same source holds its kernels to it.

#include <gtest/gtest.h>

#include "tests/support/random_plan.h"
#include "tests/support/tensors.h"
#include "tests/support/training.h"

namespace braid::train {
namespace {

constexpr int kSteps = 3;
constexpr std::int64_t kSequence = 16, kBatch = 8;

WorkerOptions options_for(Precision precision, at::Device device) {
  WorkerOptions options;
  options.numerics = parallel::numerics_of(precision, Precision::fp32, device);
  options.model.dropout = 0.1;
  return options;
}

void expect_the_same_twice(const Plan& plan, const WorkerOptions& options,
                           const std::string& what) {
  const Outcome once = train_in_process(plan, kSteps, options);
  const Outcome again = train_in_process(plan, kSteps, options);
  EXPECT_EQ(once.losses, again.losses) << what;  // false for NaN
  ASSERT_EQ(once.parameters.size(), again.parameters.size()) << what;
  for (const auto& [name, values] : once.parameters)
    EXPECT_TRUE(values.equal(again.parameters.at(name))) << what << ": " << name;
}

class Repetition : public testing::TestWithParam<std::string> {
 protected:
  const Model model_ = tiny_model(GetParam(), 2, kSequence);
};

TEST_P(Repetition, OfOneRankHasTheSameBitsOnEveryDevice) {
  for (const at::Device device : test_devices())
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      expect_the_same_twice(reference_plan(model_, kBatch), options_for(precision, device),
                            device.str() + " in " + name_of(precision));
}

TEST_P(Repetition, OfSeveralRanksHasTheSameBits) {
  constexpr int kPlans = 4;
  PlanDice dice(std::hash<std::string>()(GetParam()));
  for (int drawn = 0; drawn < kPlans;) {
    const Plan plan = dice.plan(model_, kBatch);
    if (plan.cluster.num_devices() == 1) continue;
    ++drawn;
    const Precision precision = drawn % 2 == 0 ? Precision::fp32 : Precision::bf16;
    expect_the_same_twice(
        plan, options_for(precision, at::kCPU),
        std::to_string(plan.cluster.num_devices()) + " ranks in " + name_of(precision));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Repetition, testing::ValuesIn(kTinyModels),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace braid::train
