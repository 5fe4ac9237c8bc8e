#include "runtime/measure/step.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/comm/in_process.h"
#include "tests/support/random_plan.h"

namespace braid::measure {
namespace {

StepTimes times_of(const Model& model, const StepOptions& options) {
  at::set_num_threads(1);
  StepTimes times;
  comm::run_in_process(
      1, [&](comm::Group& world) { times = time_step(model, world, at::kCPU, options); });
  return times;
}

TEST(TimeStep, TimesEveryArchitectureInFp32AndBf16) {
  for (const std::string& name : kTinyModels) {
    const Model model = tiny_model(name, 2, 16);
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const StepTimes times = times_of(
          model,
          {.batch = 2, .micro_batches = 2, .precision = precision, .warm_up = 1, .steps = 1});
      EXPECT_GT(times.seconds, 0) << name;
      EXPECT_GT(times.limit.products, 0) << name;
      EXPECT_GT(times.limit.attention, 0) << name;
      ASSERT_EQ(times.losses.size(), 3U) << name;
      // Random labels: the loss of a model that knows nothing, ln(classes).
      const auto classes = static_cast<double>(model.types.back().shape.vocab);
      EXPECT_NEAR(times.losses.front() / std::log(classes), 1, 0.2) << name;
    }
  }
}

}  // namespace
}  // namespace braid::measure
