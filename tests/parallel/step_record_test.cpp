// A record's terms, worked out by hand.

#include "runtime/parallel/step_record.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid::parallel {
namespace {

Interval from_to(double begin, double end) { return {Seconds(begin), Seconds(end)}; }

ComputeSpan compute(Phase phase, double begin, double end) {
  return {.phase = phase, .layer = "blocks.0", .micro_batch = 1, .time = from_to(begin, end)};
}

CommSpan comm(CommKind kind, Interval time, std::vector<Interval> exposed) {
  return {.kind = kind,
          .role = Role::together,
          .layer = "blocks.0",
          .operation = "op",
          .label = "",
          .micro_batch = 1,
          .peer = -1,
          .time = time,
          .exposed = std::move(exposed)};
}

//   0    1    2    3    4    5    6    7    8    9    10
//   [forward     ][backward          ]    [update  ]
//     tensor: xxxx
//   gather:  ............xx
StepRecord sample() {
  StepRecord record{.time = from_to(0, 10), .compute = {}, .comm = {}};
  record.compute = {compute(Phase::forward, 0, 3), compute(Phase::backward, 3, 7),
                    compute(Phase::update, 8, 9.5)};
  record.comm = {comm(CommKind::gather, from_to(1, 5), {from_to(4.5, 5)}),
                 comm(CommKind::tensor, from_to(1, 2), {from_to(1, 2)})};
  return record;
}

TEST(StepRecord, ComputeIsWhatItDidNotStandStillFor) {
  const StepTerms terms = terms_of(sample(), 0, {});
  EXPECT_DOUBLE_EQ(terms.compute.value(), 3 + 4 - 1 - 0.5);
  EXPECT_DOUBLE_EQ(terms.update.value(), 1.5);
  EXPECT_EQ(terms.tensor, (CommTime{Seconds(1), Seconds(0)}));
  EXPECT_EQ(terms.gather, (CommTime{Seconds(0.5), Seconds(3.5)}));
  EXPECT_DOUBLE_EQ(terms.other.exposed.value(), 1 + 0.5);  // nobody's time
  EXPECT_DOUBLE_EQ(terms.step().value(), 10);
}

TEST(StepRecord, WorkAroundTheGradientsAndTheLayoutCountsWithTheirCommunication) {
  StepRecord record{.time = from_to(0, 4), .compute = {}, .comm = {}};
  record.compute = {compute(Phase::redistribute, 0, 2), compute(Phase::reduce, 2, 4)};
  record.comm = {comm(CommKind::redistribute, from_to(0.5, 1.5), {from_to(0.5, 1.5)})};
  const StepTerms terms = terms_of(record, 0, {});
  EXPECT_DOUBLE_EQ(terms.redistribute.exposed.value(), 2);
  EXPECT_DOUBLE_EQ(terms.reduce.exposed.value(), 2);
  EXPECT_DOUBLE_EQ(terms.step().value(), 4);
}

TEST(StepRecord, AWaitIsBubbleUntilTheMessageWasSent) {
  StepRecord record{.time = from_to(0, 10), .compute = {}, .comm = {}};
  const auto message = [&](double begin, double end) {
    CommSpan span = comm(CommKind::transfer, from_to(begin, end), {from_to(begin, end)});
    span.role = Role::receives;
    span.operation = kActivation;
    span.peer = 3;
    return span;
  };
  record.comm = {message(0, 5), message(6, 7)};
  // The first was sent at 4, the second before anybody waited for it.
  const SendTimes sent = {{{3, 2, kActivation}, {Seconds(4), Seconds(5.5)}}};
  const StepTerms terms = terms_of(record, 2, sent);
  EXPECT_DOUBLE_EQ(terms.bubble.value(), 4);
  EXPECT_DOUBLE_EQ(terms.transfer.exposed.value(), 1 + 1);
  EXPECT_DOUBLE_EQ(terms.step().value(), 10);
}

TEST(StepRecord, WhoIsEarlyAtTheMeetingOfAllStagesWaitsInTheBubble) {
  StepRecord record{.time = from_to(0, 3), .compute = {}, .comm = {}};
  record.comm = {comm(CommKind::other, from_to(1, 2), {from_to(1, 2)})};
  record.comm.back().role = Role::all_stages;
  const StepTerms terms = terms_of(record, 0, {});
  EXPECT_DOUBLE_EQ(terms.bubble.value(), 1);
  EXPECT_DOUBLE_EQ(terms.other.exposed.value(), 2);
}

TEST(StepRecord, ATraceLeavesAGapWhereComputeStoodStill) {
  const TraceProcess process = trace_of({sample()}, "rank 0");
  ASSERT_EQ(process.compute.size(), 5U);
  EXPECT_EQ(process.compute[0].name, "blocks.0 F1");
  EXPECT_EQ(process.compute[0].end, Seconds(1));
  EXPECT_EQ(process.compute[1].start, Seconds(2));
  EXPECT_EQ(process.compute[2].name, "blocks.0 B1");
  EXPECT_EQ(process.compute[4].name, "blocks.0 update");
  ASSERT_EQ(process.communication.size(), 2U);
  EXPECT_EQ(process.communication[0].name, "blocks.0 gather");
  EXPECT_EQ(process.communication[0].operation, "op");
}

}  // namespace
}  // namespace braid::parallel
