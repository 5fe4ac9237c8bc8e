#include "planner/explain/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "planner/explain/reserved.h"
#include "planner/simulate/plan_events.h"
#include "tests/explain/example_plan.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

// Three pipelines of one second each way, and one that takes twice as long.
EventInput one_slow() {
  const StageTimes times{Seconds(1), Seconds(1), Seconds(1), Seconds(0), Seconds(0), Seconds(0)};
  return {.shape = {ScheduleKind::one_f_one_b, 1, 2, 1},
          .times = {times},
          .streams = {{.reductions = {{.at = 1, .message = {.moving = Seconds(2)}}}}},
          .replicas = {{.pipelines = 3, .paces = {}}, {.pipelines = 1, .paces = {{2, 2, 2, 2}}}}};
}

TEST(Streams, NamesWaitsThatThereAreAndNoOthers) {
  const EventInput input = one_slow();
  const EventSimulation simulation = simulate_events(input);
  EXPECT_EQ(slowest_class(simulation), 1U);
  const std::string text = render_streams(simulation, input, {});
  EXPECT_THAT(text, HasSubstr("  stage  pipelines   reduce  replicas\n"
                              "      0          3  2.000 s   6.000 s\n"
                              "                 1  2.000 s       0 s\n"));
  EXPECT_THAT(text, Not(HasSubstr("links")));
}

TEST(Streams, JsonHasEveryDevicesParts) {
  const EventInput input = one_slow();
  const Json json = event_simulation_json(simulate_events(input), input);
  EXPECT_EQ(json.at("iteration_seconds"), 14.0);
  EXPECT_EQ(json.at("stages").size(), 1U);
  ASSERT_EQ(json.at("devices").size(), 2U);
  EXPECT_EQ(json.at("devices")[0].at("pipelines"), 3);
  EXPECT_EQ(json.at("devices")[0].at("replicas_seconds"), 6.0);
  EXPECT_EQ(json.at("devices")[1].at("forward_seconds"), 4.0);
}

TEST(Reserved, SaysWhatFitsAndWhatDoesNot) {
  Plan plan = example_plan();
  for (StagePrediction& stage : plan.prediction.stages) stage.budget = Bytes(std::int64_t{1} << 50);
  const auto roomy = reserved_by_stage(plan);
  ASSERT_EQ(roomy.size(), plan.stages.size());
  for (const ReservedMemory& stage : roomy) {
    EXPECT_TRUE(stage.fits);
    EXPECT_LE(stage.peak.allocated, stage.peak.reserved);
  }
  EXPECT_THAT(render_reserved(roomy, plan, {}), Not(HasSubstr("does not fit")));
  plan.prediction.stages[0].budget = plan.prediction.stages[0].overhead;
  const auto tight = reserved_by_stage(plan);
  EXPECT_FALSE(tight[0].fits);
  EXPECT_THAT(render_reserved(tight, plan, {}), HasSubstr("does not fit"));
  EXPECT_EQ(reserved_json(tight, plan)[0].at("fits"), false);
}

}  // namespace
}  // namespace braid
