// Training through the kernels, all operators together, against training in fp64 without them.

#include "planner/core/error.h"
#include "tests/ops/cuda_cases.h"
#include "tests/support/random_plan.h"
#include "tests/support/training.h"

namespace braid::train {
namespace {

class CudaTrain : public ops::KernelTest {
 protected:
  WorkerOptions options() const {
    WorkerOptions made;
    const Precision precision = type() == at::kFloat ? Precision::fp32 : Precision::bf16;
    made.numerics = parallel::numerics_of(precision, Precision::fp32, device);
    return made;
  }
  void expect_same_losses(const Plan& plan, const std::string& what) const {
    verify(plan, what);
    constexpr int kSteps = 3;
    const Outcome expected = train_in_process(plan, kSteps);
    const Outcome found = train_in_process(plan, kSteps, options());
    ASSERT_EQ(found.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < found.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], expected.losses[i], type() == at::kFloat ? 1e-4 : 2e-2)
          << what << ", step " << i;
  }
};
BRAID_KERNEL_TYPES(CudaTrain);

TEST_P(CudaTrain, KernelsTrainAsTheOperatorsInFp64) {
  for (const char* name : {"llama", "llama_tied", "gpt2", "mistral", "mixtral"})
    expect_same_losses(reference_plan(tiny_model(name, 2, 16), 4), name);
}

TEST_P(CudaTrain, RecomputationAndMicroBatchesChangeNothing) {
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    Plan plan = reference_plan(tiny_model("llama", 2, 16), 4);
    plan.shape.micro_batches = 2;
    for (std::size_t i = 1; i + 1 < plan.stages[0].strategies.size(); ++i)
      plan.stages[0].strategies[i].recompute = recompute;
    expect_same_losses(plan, name_of(recompute));
  }
}

TEST_P(CudaTrain, GradientsInBf16TrainNearlyAsWell) {
  if (type() != at::kBFloat16) GTEST_SKIP() << "a model in fp32 has gradients in fp32";
  for (const char* name : {"llama", "llama_tied", "gpt2", "mixtral"}) {
    Plan plan = reference_plan(tiny_model(name, 2, 16), 4);
    plan.shape.micro_batches = 2;
    WorkerOptions narrow = options();
    narrow.numerics.gradient = at::kBFloat16;
    constexpr int kSteps = 4;
    const Outcome expected = train_in_process(plan, kSteps, options());
    const Outcome found = train_in_process(plan, kSteps, narrow);
    for (std::size_t i = 0; i < found.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-2) << name << ", step " << i;
    EXPECT_NE(found.losses, expected.losses) << name;
  }
}

TEST_P(CudaTrain, RoundedFactorsTrainNearlyAsWell) {
  if (type() != at::kBFloat16) GTEST_SKIP() << "fp8 is beside bf16";
  const Plan plan = reference_plan(tiny_model("llama", 2, 16), 4);
  WorkerOptions narrow = options();
  narrow.numerics.fp8 = true;
  constexpr int kSteps = 4;
  const Outcome expected = train_in_process(plan, kSteps, options());
  const Outcome found = train_in_process(plan, kSteps, narrow);
  for (std::size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], 5e-2) << "step " << i;
  EXPECT_NE(found.losses, expected.losses);
}

TEST_P(CudaTrain, AStepThatIsLaunchedAtOnceIsTheSameStep) {
  if (!device.is_cuda()) GTEST_SKIP() << "needs a GPU";
  constexpr int kSteps = 8, kPlainSteps = 2;
  for (const char* name : {"llama", "llama_tied", "gpt2", "mistral"}) {
    Plan plan = reference_plan(tiny_model(name, 2, 16), 4);
    plan.shape.micro_batches = 2;
    const auto losses = [&](bool capture) {
      std::vector<double> all;
      comm::run_in_process(1, [&](comm::Group& world) {
        const at::NoGradGuard no_grad;
        WorkerOptions how = options();
        how.capture = capture;
        Worker worker(plan, world, how, synthetic_samples(plan.model));
        for (int step = 0; step < kSteps; ++step)
          all.push_back(worker.step(step, 1e-3 * (step + 1)).loss);
        EXPECT_EQ(worker.captured().replayed(), capture ? kSteps - kPlainSteps : 0) << name;
      });
      return all;
    };
    EXPECT_EQ(losses(true), losses(false)) << name;
  }
}

TEST_P(CudaTrain, RanksThatShareTheVocabularyTrainAsOne) {
  if (device.is_cuda()) GTEST_SKIP() << "ranks that are threads have no GPU memory in common";
  for (const Zero zero : {Zero::none, Zero::optimizer, Zero::parameters}) {
    Plan plan = reference_plan(tiny_model("llama", 2, 16), 4);
    plan.cluster = tiny_cluster(4);
    for (Strategy& strategy : plan.stages.front().strategies) {
      strategy.tp = 2;
      strategy.dp = 2;
      strategy.zero = zero;
    }
    expect_same_losses(plan, name_of(zero));
  }
}

TEST_P(CudaTrain, ALossThatIsNotANumberLeavesTheWeightsAlone) {
  const Plan plan = reference_plan(tiny_model("llama", 1, 16), 2);
  comm::run_in_process(1, [&](comm::Group& world) {
    const at::NoGradGuard no_grad;
    Worker worker(plan, world, options(), synthetic_samples(plan.model));
    parallel::Layer* last = worker.model().all().back();
    const std::vector<parallel::FlatBuffer*> buffers = last->parameters().buffers();
    at::Tensor(buffers.front()->weights()).narrow(0, 0, 1).fill_(NAN);
    const at::Tensor before = buffers.front()->owned_master().clone();
    EXPECT_THROW(worker.step(0, 1e-3), Error);
    // In fp32 the master is the weights, and holds the NaN: compared as bits.
    EXPECT_TRUE(before.nan_to_num(0.5).equal(buffers.front()->owned_master().nan_to_num(0.5)));
  });
}

}  // namespace
}  // namespace braid::train
