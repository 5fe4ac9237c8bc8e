#include "planner/simulate/predicted_terms.h"

#include <gtest/gtest.h>

#include "planner/simulate/price_plan.h"
#include "tests/plan/sample_plan.h"

namespace braid {
namespace {

// Every term another power of two, in milliseconds, so that a sum tells which terms are in it.
StagePrediction told_apart(double transfer) {
  StagePrediction stage;
  double next = 1e-3;
  const auto draw = [&] { return std::exchange(next, 2 * next); };
  LayerTime& t = stage.terms;
  for (double* term :
       {&t.forward_compute, &t.backward_input_compute, &t.backward_weight_compute, &t.recompute,
        &t.forward_tensor, &t.backward_tensor, &t.forward_context, &t.backward_context,
        &t.forward_expert, &t.backward_expert, &t.forward_gather, &t.backward_gather, &t.reduce,
        &t.regather, &t.update, &t.hidden_context, &t.hidden_gather, &t.hidden_reduce})
    *term = draw();
  stage.redistribute = draw();
  t.hidden_tensor = draw();
  stage.times = {Seconds(t.forward() + stage.redistribute / 2),
                 Seconds(t.backward_input() + stage.redistribute / 2),
                 Seconds(t.backward_weight()),
                 Seconds(t.once_reduce()),
                 Seconds(t.once_update()),
                 Seconds(transfer)};
  return stage;
}

Plan plan_of(const PipelineShape& shape, double transfer) {
  Plan plan = sample_plan(shape);
  for (StagePrediction& stage : plan.prediction.stages) stage = told_apart(transfer);
  return plan;
}

TEST(PredictedTerms, EveryTermIsCountedOnceAndSumsToTheIteration) {
  for (const PipelineShape shape : {PipelineShape{ScheduleKind::one_f_one_b, 1, 4, 1},
                                    PipelineShape{ScheduleKind::one_f_one_b, 4, 8, 1},
                                    PipelineShape{ScheduleKind::interleaved, 2, 4, 2},
                                    PipelineShape{ScheduleKind::zero_bubble, 4, 9, 1}}) {
    const Plan plan = plan_of(shape, 3e-3);
    const Simulation simulation = simulate(shape, stage_times(plan.prediction));
    for (const StepTerms& terms : predicted_terms(plan)) {
      EXPECT_NEAR(terms.step() / simulation.iteration, 1, 1e-12) << name_of(shape.schedule);
      EXPECT_GE(terms.bubble, Seconds(-1e-9));
    }
  }
}

TEST(PredictedTerms, MicroBatchesMultiplyWhatIsNotOnceAStep) {
  const StepTerms terms = predicted_terms(plan_of({ScheduleKind::one_f_one_b, 1, 3, 1}, 0), 0);
  EXPECT_DOUBLE_EQ(terms.compute.value(), 3 * (1 + 2 + 4 + 8) * 1e-3);
  EXPECT_DOUBLE_EQ(terms.tensor.exposed.value(), 3 * (16 + 32) * 1e-3);
  EXPECT_DOUBLE_EQ(terms.reduce.exposed.value(), 4096e-3);
  EXPECT_DOUBLE_EQ(terms.update.value(), 16384e-3);
  EXPECT_DOUBLE_EQ(terms.tensor.hidden.value(), 3 * 524288e-3);
  EXPECT_DOUBLE_EQ(terms.context.hidden.value(), 3 * 32768e-3);
  EXPECT_DOUBLE_EQ(terms.reduce.hidden.value(), 131072e-3);
  EXPECT_EQ(terms.bubble, Seconds(0));
  EXPECT_EQ(terms.transfer, CommTime{});
}

// Two stages, one micro-batch: the second waits for the first's forward and one transfer, the first
// for the second's forward and backward and another transfer.
TEST(PredictedTerms, AWaitForAMessageIsTransferAsLongAsItMovesAndBubbleBefore) {
  const Plan plan = plan_of({ScheduleKind::gpipe, 2, 1, 1}, 0.5);
  const StageTimes& times = plan.prediction.stages.front().times;
  const std::vector<StepTerms> terms = predicted_terms(plan);
  EXPECT_NEAR(terms[1].transfer.exposed.value(), 0.5, 1e-12);
  EXPECT_EQ(terms[1].transfer.hidden, Seconds(0));
  EXPECT_NEAR(terms[0].transfer.exposed.value(), 0.5, 1e-12);
  const Seconds back = times.backward_input + times.backward_weight;
  // The way there is no wait for a message of its own yet.
  EXPECT_DOUBLE_EQ(terms[0].bubble.value(), (Seconds(0.5) + times.forward + back).value());
}

}  // namespace
}  // namespace braid
