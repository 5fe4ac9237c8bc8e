// The closed forms against the event simulator, which is the truth.

#include "planner/cost/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "planner/simulate/schedule.h"
#include "planner/simulate/simulator.h"

namespace braid {
namespace {

constexpr double kRelative = 1e-9;
constexpr ScheduleKind kKinds[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                   ScheduleKind::interleaved, ScheduleKind::zero_bubble};

std::string describe(const PipelineShape& shape) {
  return name_of(shape.schedule) + " p" + std::to_string(shape.stages) + " m" +
         std::to_string(shape.micro_batches) + " v" + std::to_string(shape.chunks);
}

std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (const ScheduleKind kind : kKinds) {
    for (const int stages : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
      for (const int micro_batches : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 32, 33, 48}) {
        for (const int chunks : {1, 2, 3, 4}) {
          const PipelineShape shape{kind, stages, micro_batches, chunks};
          if (schedulable(shape)) shapes.push_back(shape);
        }
      }
    }
  }
  return shapes;
}

class Dice {
 public:
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }

  // A stage whose weight gradient is no longer than forward or input gradient, as a layer's are.
  StageTimes stage() {
    const double w = integer(0, 4) == 0 ? 0.0 : between(0.1, 1.0);
    return {Seconds(w + between(0.05, 1)), Seconds(w + between(0.05, 2)), Seconds(w),
            Seconds(between(0, 3)),        Seconds(between(0, 3)),        Seconds(0)};
  }
  StageTimes wild_stage() {
    return {Seconds(between(0, 2)), Seconds(between(0, 2)), Seconds(between(0, 2)),
            Seconds(between(0, 3)), Seconds(between(0, 3)), Seconds(0)};
  }
  PipelineShape shape() {
    for (;;) {
      const PipelineShape shape{kKinds[integer(0, 3)], integer(1, 10), integer(1, 40),
                                integer(1, 4)};
      if (schedulable(shape)) return shape;
    }
  }

 private:
  std::mt19937_64 engine_{20240607};
};

std::vector<StageTimes> even(const PipelineShape& shape, const StageTimes& stage) {
  return std::vector<StageTimes>(static_cast<std::size_t>(shape.stages), stage);
}
double simulated(const PipelineShape& shape, const std::vector<StageTimes>& stages) {
  return simulate(shape, stages).iteration.value();
}

TEST(PipelineCost, KnownTimesOfEvenStages) {
  struct Case {
    const char* fact;
    PipelineShape shape;
    double time;
  };
  const Case cases[] = {
      // F = Bi = W = 1, reduce 10, update 100, no transfers.
      {"one stage just works", {ScheduleKind::one_f_one_b, 1, 5, 1}, 5 * 3 + 110},
      {"gpipe waits p-1 micro-batches", {ScheduleKind::gpipe, 4, 8, 1}, (8 + 3) * 3 + 110},
      {"1F1B waits as long", {ScheduleKind::one_f_one_b, 4, 8, 1}, (8 + 3) * 3 + 110},
      {"two chunks halve the wait", {ScheduleKind::interleaved, 4, 8, 2}, 8 * 3 + 4.5 + 110},
      {"zero-bubble leaves a third", {ScheduleKind::zero_bubble, 4, 8, 1}, 8 * 3 + 3 + 110},
      {"a lone micro-batch visits all", {ScheduleKind::zero_bubble, 4, 1, 1}, 4 * 2 + 1 + 110},
  };
  const StageTimes one{Seconds(1), Seconds(1), Seconds(1), Seconds(10), Seconds(100), Seconds(0)};
  for (const Case& c : cases) {
    EXPECT_NEAR(pipeline_time(c.shape, even(c.shape, one)).value(), c.time, 1e-12) << c.fact;
  }
}

TEST(PipelineCost, EvenStagesTakeExactlyTheSimulatedTime) {
  Dice dice;
  for (const PipelineShape& shape : all_shapes()) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto stages = even(shape, dice.stage());
      const double truth = simulated(shape, stages);
      EXPECT_NEAR(pipeline_time(shape, stages).value(), truth, truth * kRelative)
          << describe(shape);
      EXPECT_NEAR(bottleneck_time(shape, stages).value(), truth, truth * kRelative)
          << describe(shape);
      const auto any_ratio = even(shape, dice.wild_stage());
      const double wild = simulated(shape, any_ratio);
      EXPECT_NEAR(pipeline_time(shape, any_ratio).value(), wild, wild * kRelative)
          << describe(shape);
    }
  }
}

TEST(PipelineCost, EvenStagesRestAsLongAsTheSimulatorSays) {
  const StageTimes one{Seconds(1), Seconds(1), Seconds(1), Seconds(0), Seconds(0), Seconds(0)};
  for (const PipelineShape& shape : all_shapes()) {
    if (shape.micro_batches < shape.stages) continue;  // zero-bubble's third does not fill that
    const double truth = simulated(shape, even(shape, one));
    EXPECT_NEAR(resting_share(shape), 1 - 3 * shape.micro_batches / truth, kRelative)
        << describe(shape);
  }
}

// The longest transfer for which transfer_time promises to be exact.
double longest_exact_transfer(const PipelineShape& shape, const StageTimes& t) {
  switch (shape.schedule) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b:
      return 20;
    case ScheduleKind::interleaved:
      if (shape.chunks == 1) return 20;
      return std::min(t.forward, t.backward_input + t.backward_weight).value() / shape.chunks;
    case ScheduleKind::zero_bubble:
      return t.backward_weight.value() / 2;
  }
  return 0;
}

TEST(PipelineCost, TransfersOfEvenStagesAreExactWithinTheirLimits) {
  Dice dice;
  for (const PipelineShape& shape : all_shapes()) {
    for (const double fraction : {0.01, 0.5, 1.0}) {
      StageTimes stage = dice.stage();
      const double without = simulated(shape, even(shape, stage));
      stage.transfer = Seconds(fraction * longest_exact_transfer(shape, stage));
      const auto stages = even(shape, stage);
      const double truth = simulated(shape, stages);
      EXPECT_NEAR(pipeline_time(shape, stages).value(), truth, truth * kRelative)
          << describe(shape);
      EXPECT_NEAR(without + transfer_time(shape, stage.transfer).value(), truth, truth * kRelative)
          << describe(shape);
    }
  }
}

TEST(PipelineCost, ZeroBubbleLapsAreExactForLongTransfers) {
  Dice dice;
  for (const int stages : {2, 3, 4, 7}) {
    for (int micro_batches = 1; micro_batches < 24; ++micro_batches) {
      const PipelineShape shape{ScheduleKind::zero_bubble, stages, micro_batches, 1};
      StageTimes stage = dice.stage();
      stage.transfer = stage.backward_weight * dice.between(0.5, 8);
      const double truth = simulated(shape, even(shape, stage));
      EXPECT_NEAR(pipeline_time(shape, even(shape, stage)).value(), truth, truth * kRelative)
          << describe(shape);
    }
  }
}

TEST(PipelineCost, IsALowerBoundForAnyStagesAndExactForGpipe) {
  Dice dice;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const PipelineShape shape = dice.shape();
    const double longest_transfer = repeat % 3 == 0 ? 0.0 : repeat % 3 == 1 ? 0.3 : 5.0;
    const double spread = repeat % 2 == 0 ? 0.1 : 1.0;
    const StageTimes base = dice.stage();
    std::vector<StageTimes> stages;
    for (int i = 0; i < shape.stages; ++i) {
      const auto around = [&](Seconds t) { return t * dice.between(1 - spread, 1 + spread); };
      StageTimes stage = repeat % 5 == 0 ? dice.wild_stage() : base;
      stage = {around(stage.forward), around(stage.backward_input), around(stage.backward_weight),
               around(stage.reduce),  around(stage.update),         Seconds(0)};
      stage.transfer = Seconds(dice.between(0, longest_transfer));
      stages.push_back(stage);
    }
    const double truth = simulated(shape, stages);
    EXPECT_LE(bottleneck_time(shape, stages), pipeline_time(shape, stages)) << describe(shape);
    EXPECT_LE(pipeline_time(shape, stages).value(), truth * (1 + kRelative)) << describe(shape);
    if (shape.schedule == ScheduleKind::gpipe) {
      EXPECT_NEAR(pipeline_time(shape, stages).value(), truth, truth * kRelative)
          << describe(shape);
    }
  }
}

TEST(PipelineCost, WeightsWithoutTransfersAgreeInBothSpellings) {
  const TimeWeights weights{1, 2, 3, 4, 5, 6};
  const StageTimes t{Seconds(1), Seconds(10), Seconds(100), Seconds(1e3), Seconds(1e4), Seconds(0)};
  EXPECT_DOUBLE_EQ(weights(1, 10, 100, 1e3, 1e4), 54321);
  EXPECT_DOUBLE_EQ(weights(t).value(), 54321);
}

TEST(PipelineCost, InFlightIsThePeakOfTheList) {
  for (const PipelineShape& shape : all_shapes()) {
    const Schedule schedule = make_schedule(shape);
    for (int stage = 0; stage < shape.stages; ++stage) {
      EXPECT_DOUBLE_EQ(in_flight(shape, stage),
                       peak_in_flight(schedule[static_cast<std::size_t>(stage)], shape.chunks))
          << describe(shape) << " stage " << stage;
    }
  }
}

TEST(PipelineCost, OnlyInterleavedHasChunksInWholeGroups) {
  EXPECT_TRUE(schedulable({ScheduleKind::interleaved, 4, 8, 2}));
  EXPECT_TRUE(schedulable({ScheduleKind::interleaved, 4, 6, 1}));
  EXPECT_FALSE(schedulable({ScheduleKind::interleaved, 4, 6, 2}));
  EXPECT_FALSE(schedulable({ScheduleKind::one_f_one_b, 4, 8, 2}));
  EXPECT_FALSE(schedulable({ScheduleKind::gpipe, 0, 8, 1}));
}

}  // namespace
}  // namespace braid
