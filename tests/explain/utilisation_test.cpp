// MFU, throughput and the bound of physics, computed once; figures beyond them are refused.

#include "planner/explain/utilisation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/error.h"
#include "tests/explain/example_plan.h"

namespace braid {
namespace {

using testing::HasSubstr;

TEST(Utilisation, IsWorkOverWhatTheDevicesCouldDo) {
  const Plan plan = example_plan();
  const double work = training_flops(plan.model).value() * 4;
  const Utilisation figures = utilisation(plan, plan.prediction.iteration);
  EXPECT_DOUBLE_EQ(figures.mfu.value_or(0), work / (10 * 2 * 1e12));
  EXPECT_DOUBLE_EQ(figures.samples_per_second, 0.4);
  EXPECT_DOUBLE_EQ(figures.tokens_per_second, 0.4 * static_cast<double>(plan.model.sequence));
  EXPECT_EQ(figures.sample_flops->value() * 4, work);
}

TEST(Utilisation, IsNotGuessedWithoutShapes) {
  Plan plan = example_plan();
  plan.model.types[1].shape = {.kind = LayerKind::block, .tokens = 100, .hidden = 64};
  const Utilisation figures = utilisation(plan, plan.prediction.iteration);
  EXPECT_FALSE(figures.mfu || figures.physics || figures.sample_flops);
  EXPECT_NO_THROW(expect_possible(plan, Seconds(1e-30), Timing::predicted, ""));
}

std::string refusal(const Plan& plan, Seconds iteration, Timing timing) {
  try {
    expect_possible(plan, iteration, timing, "here");
  } catch (const Error& error) {
    return error.mistake().what + " | " + error.mistake().where + " | " + error.mistake().fix;
  }
  return "";
}

TEST(Utilisation, OfMoreThanThereIsIsRefusedWithWhatIsWrong) {
  Plan plan = example_plan();
  const Seconds least = *utilisation(plan, plan.prediction.iteration).physics;
  EXPECT_EQ(refusal(plan, least, Timing::measured), "");
  const std::string measured = refusal(plan, 0.5 * least, Timing::measured);
  EXPECT_THAT(measured, HasSubstr("2 times as fast as"));
  EXPECT_THAT(measured, HasSubstr("| here | correct "));
  EXPECT_THAT(measured, HasSubstr("braid profile hardware"));
  plan.profile = ProfileReference{"p.json", "0"};
  EXPECT_THAT(refusal(plan, 0.5 * least, Timing::predicted),
              HasSubstr("measure the profile again: braid profile model"));
}

TEST(Utilisation, NamesTheFigureThatBinds) {
  Plan plan = example_plan();
  DeviceType& device = plan.cluster.device_types[0];
  device.memory_bandwidth = BytesPerSecond(1e30);
  for (NodeGroup& group : plan.cluster.groups) group.inside.bandwidth = BytesPerSecond(1e30);
  EXPECT_THAT(refusal(plan, Seconds(1e-20), Timing::measured), HasSubstr("correct \"peak\""));
  device.memory_bandwidth = BytesPerSecond(1);
  EXPECT_THAT(refusal(plan, Seconds(1e-20), Timing::measured),
              HasSubstr("correct \"memory_bandwidth\""));
}

TEST(Utilisation, AnMfuAboveOneIsRefused) {
  EXPECT_NO_THROW(expect_possible(1.0, "--peak", "raise it"));
  EXPECT_THROW(expect_possible(1.01, "--peak", "raise it"), Error);
}

}  // namespace
}  // namespace braid
