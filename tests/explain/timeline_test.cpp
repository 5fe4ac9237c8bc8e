#include "planner/explain/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "planner/simulate/price_plan.h"
#include "tests/explain/example_plan.h"

namespace braid {
namespace {

using testing::HasSubstr;

// "  stage 0   " stands before the cells.
constexpr int kMargin = 12;

std::string timeline(const PipelineShape& shape, const StageTimes& times, int cells) {
  const std::vector<StageTimes> stages(static_cast<std::size_t>(shape.stages), times);
  return render_timeline(simulate(shape, stages, {.events = true}), shape,
                         {.color = false, .width = cells + kMargin});
}

constexpr StageTimes kEven{Seconds(1), Seconds(1), Seconds(1), Seconds(0), Seconds(0), Seconds(0)};

TEST(Timeline, ShowsOneForwardOneBackward) {
  // Nine seconds in 36 cells: four cells a second.
  const std::string text = timeline({ScheduleKind::one_f_one_b, 2, 2, 1}, kEven, 36);
  EXPECT_THAT(text, HasSubstr("  stage 0   F0──F1──········B0══════····B1══════\n"
                              "  stage 1   ····F0──B0══════F1──B1══════········\n"));
}

TEST(Timeline, OfNoTimeIsIdle) {
  const std::string text = timeline({ScheduleKind::one_f_one_b, 2, 2, 1}, {}, 20);
  EXPECT_THAT(text, HasSubstr("  stage 0   ····················\n"
                              "  stage 1   ····················\n"));
}

TEST(Timeline, ShowsTransfersAsIdleness) {
  const Plan plan = example_plan();
  const Simulation simulation =
      simulate(plan.shape, stage_times(plan.prediction), {.events = true});
  const std::string text =
      render_timeline(simulation, plan.shape, {.color = false, .width = 40 + kMargin});
  EXPECT_THAT(text, HasSubstr("  stage 0   F0──F1──············B0══════····B1══════\n"
                              "  stage 1   ······F0──B0══════F1──B1══════··········\n"));
}

TEST(Timeline, ShowsWeightGradientsOfTheirOwn) {
  const std::string text = timeline({ScheduleKind::zero_bubble, 2, 2, 1}, kEven, 32);
  EXPECT_THAT(text, HasSubstr("W0"));
  EXPECT_THAT(text, HasSubstr("W of the weights"));
}

TEST(Timeline, ShowsTheEndsOfManyMicroBatches) {
  const std::string text = timeline({ScheduleKind::one_f_one_b, 2, 200, 1}, kEven, 40);
  EXPECT_THAT(text, HasSubstr("beginning, then its end"));
  EXPECT_THAT(text, HasSubstr("F0"));
  EXPECT_THAT(text, HasSubstr("B199"));
}

TEST(Timeline, EveryRowIsAsWideAsAsked) {
  const std::string text = timeline({ScheduleKind::interleaved, 4, 8, 2}, kEven, 61);
  std::size_t rows = 0;
  for (std::size_t at = text.find("  stage "); at != std::string::npos;
       at = text.find("  stage ", at + 1)) {
    EXPECT_EQ(cells(text.substr(at, text.find('\n', at) - at)), 61U + kMargin);
    ++rows;
  }
  EXPECT_GE(rows, 4U);
}

TEST(Timeline, UseAddsUpToTheIteration) {
  const Plan plan = example_plan();
  const Json json = simulation_json(simulate(plan.shape, stage_times(plan.prediction)));
  EXPECT_EQ(json.at("iteration_seconds"), 10.0);
  EXPECT_EQ(json.at("stages").at(0).at("bubble_seconds"), 4.0);
  EXPECT_EQ(json.at("stages").at(0).at("busy_fraction"), 0.6);
}

}  // namespace
}  // namespace braid
