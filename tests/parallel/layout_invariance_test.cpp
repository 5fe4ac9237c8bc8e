// Every plan trains the same model: loss of each step and every parameter, against one device, in
// fp64.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/random_plan.h"
#include "tests/support/tensors.h"
#include "tests/support/training.h"

namespace braid {
namespace {

using train::Outcome;

constexpr int kSteps = 10;
constexpr double kTolerance = 1e-9;
// A parameter moves by about the learning rate a step: what has no gradient but rounding is held
// against that.
constexpr double kLeastScale = kSteps * train::kTestLearningRate;

// The reference of a model and batch, trained once.
const Outcome& reference(const Model& model, std::int64_t global_batch) {
  static std::map<std::string, Outcome> known;
  const Plan plan = reference_plan(model, global_batch);
  const std::string key = plan_text(plan);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, train::train_in_process(plan, kSteps)).first->second;
}

// The failing plan as a file that `braid train --plan` reads.
std::string write_plan(const Plan& plan, std::uint64_t seed) {
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("braid_plan_{}.json", seed);
  std::ofstream(file) << plan_text(plan);
  return file.string();
}

// What differs; empty: nothing.
std::string difference(const Outcome& got, const Outcome& expected) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    const double error = std::abs(got.losses[i] / expected.losses[i] - 1);
    if (!(error <= kTolerance))
      return fmt::format("loss of step {} is {}, expected {} (relative error {:.2e})", i,
                         got.losses[i], expected.losses[i], error);
  }
  if (got.parameters.size() != expected.parameters.size())
    return fmt::format("{} parameters, expected {}", got.parameters.size(),
                       expected.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    const auto found = got.parameters.find(name);
    if (found == got.parameters.end()) return "no parameter " + name;
    const auto apart = found->second.sub(value).abs().max().item<double>();
    const double scale = std::max(value.abs().max().item<double>(), kLeastScale);
    if (!(apart <= kTolerance * scale))
      return fmt::format("parameter {} is {:.2e} apart, {:.2e} relative", name, apart,
                         apart / scale);
  }
  return "";
}

void check(const Plan& plan, std::uint64_t seed) {
  const Outcome& expected = reference(plan.model, plan.global_batch);
  std::string fault;
  try {
    fault = difference(train::train_in_process(plan, kSteps), expected);
  } catch (const std::exception& error) {
    fault = error.what();
  }
  EXPECT_EQ(fault, "") << "seed " << seed << "; the plan is in " << write_plan(plan, seed);
}

// Ten plans a test, so that tests run side by side and a failure names its ten.
class LayoutInvariance : public testing::TestWithParam<int> {};

TEST_P(LayoutInvariance, TenPlansTrainTheModelOfOneDevice) {
  for (int i = 0; i < 10; ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * 10 + i);
    check(PlanDice(seed).plan(), seed);
  }
}

// Of each architecture, as many plans as every change can afford.
class ArchitectureInvariance : public testing::TestWithParam<std::string> {};

TEST_P(ArchitectureInvariance, EveryPlanTrainsTheModelOfOneDevice) {
  const int plans = std::getenv("BRAID_LONG_TESTS") != nullptr ? 20 : 5;
  for (int i = 0; i < plans; ++i) {
    const auto seed = static_cast<std::uint64_t>(1000 + i);
    const Model model = tiny_model(GetParam(), 2 + i % 3, i % 2 == 0 ? 16 : 32);
    check(PlanDice(seed).plan(model, 8), seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ArchitectureInvariance, testing::ValuesIn(kTinyModels),
                         [](const auto& one) { return one.param; });

TEST(RandomPlans, HaveSquaresOfAllKinds) {
  std::set<std::string> squares;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    for (const std::string& square : squares_in(PlanDice(seed).plan())) squares.insert(square);
  EXPECT_EQ(squares.size(), kAllSquares.size());
}

TEST(RandomPlans, PassTokensInChunksUnderMegatron) {
  std::set<int> chunks;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Plan plan = PlanDice(seed).plan();
    for (const StagePlan& stage : plan.stages)
      for (const Strategy& s : stage.strategies)
        if (s.tp > 1 && s.tp_kind == TensorKind::megatron)
          chunks.insert(token_chunks(s, plan.model.sequence, 1, /*least_rows=*/1));
  }
  EXPECT_EQ(chunks, (std::set<int>{1, 2}));
}

TEST(Determinism, TheSameRunTwiceGivesTheSameBits) {
  for (const std::uint64_t seed : {3, 14, 15, 92}) {
    const Plan plan = PlanDice(seed).plan();
    const Outcome first = train::train_in_process(plan, 3);
    const Outcome second = train::train_in_process(plan, 3);
    EXPECT_EQ(first.losses, second.losses) << "seed " << seed;
    for (const auto& [name, value] : first.parameters)
      EXPECT_TRUE(value.equal(second.parameters.at(name))) << "seed " << seed << ", " << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Quick, LayoutInvariance, testing::Range(0, 10));
// Behind a switch: BRAID_LONG_TESTS=1.
INSTANTIATE_TEST_SUITE_P(Long, LayoutInvariance,
                         testing::Range(10, std::getenv("BRAID_LONG_TESTS") != nullptr ? 60 : 10));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayoutInvariance);

}  // namespace
}  // namespace braid
