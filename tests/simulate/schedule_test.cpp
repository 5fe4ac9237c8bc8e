#include "planner/simulate/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/cost/pipeline.h"
#include "planner/simulate/verify_schedule.h"

namespace braid {
namespace {

// The compute operations of a list: "F0 F1 B0 W0"; chunks above the first as in "F0'".
std::string compute_of(const OpList& list) {
  std::string text;
  for (const Op& op : list) {
    std::string letter;
    if (op.kind == OpKind::forward) letter = "F";
    if (op.kind == OpKind::backward || op.kind == OpKind::backward_input) letter = "B";
    if (op.kind == OpKind::backward_weight) letter = "W";
    if (letter.empty()) continue;
    text += (text.empty() ? "" : " ") + letter + std::to_string(op.micro_batch) +
            std::string(static_cast<std::size_t>(op.chunk), '\'');
  }
  return text;
}

TEST(Schedule, ComputeOrderByHand) {
  struct Case {
    const char* fact;
    PipelineShape shape;
    std::vector<std::string> stages;
  };
  const Case cases[] = {
      {"gpipe: all forwards first",
       {ScheduleKind::gpipe, 2, 3, 1},
       {"F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"}},
      {"1F1B: the first stage is two ahead of the last",
       {ScheduleKind::one_f_one_b, 3, 4, 1},
       {"F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}},
      {"1F1B: fewer micro-batches than stages",
       {ScheduleKind::one_f_one_b, 3, 1, 1},
       {"F0 B0", "F0 B0", "F0 B0"}},
      {"interleaved: groups of two go through both chunks",
       {ScheduleKind::interleaved, 2, 4, 2},
       {"F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
        "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3"}},
      {"interleaved with one chunk is 1F1B",
       {ScheduleKind::interleaved, 2, 2, 1},
       {"F0 F1 B0 B1", "F0 B0 F1 B1"}},
      {"zero-bubble: stage i is i weight gradients behind",
       {ScheduleKind::zero_bubble, 3, 4, 1},
       {"F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3", "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3",
        "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"}},
      {"zero-bubble on one stage does not split",
       {ScheduleKind::zero_bubble, 1, 2, 1},
       {"F0 B0 F1 B1"}},
      {"a lone stage runs its chunks in turn",
       {ScheduleKind::interleaved, 1, 2, 2},
       {"F0 F0' B0' F1 B0 F1' B1' B1"}},
  };
  for (const Case& c : cases) {
    const Schedule schedule = make_schedule(c.shape);
    ASSERT_EQ(schedule.size(), c.stages.size()) << c.fact;
    for (std::size_t stage = 0; stage < schedule.size(); ++stage) {
      EXPECT_EQ(compute_of(schedule[stage]), c.stages[stage]) << c.fact << ", stage " << stage;
    }
  }
}

TEST(Schedule, TransfersStandAroundTheirCompute) {
  using enum OpKind;
  const Schedule schedule = make_schedule({ScheduleKind::one_f_one_b, 3, 1, 1});
  const OpList first = {{forward},  {send_activation}, {receive_gradient},
                        {backward}, {reduce},          {update}};
  const OpList middle = {
      {receive_activation}, {forward},       {send_activation}, {receive_gradient},
      {backward},           {send_gradient}, {reduce},          {update}};
  const OpList last = {{receive_activation}, {forward}, {backward},
                       {send_gradient},      {reduce},  {update}};
  EXPECT_EQ(schedule, (Schedule{first, middle, last}));
}

TEST(Schedule, ALoneStageSendsNothing) {
  for (const int chunks : {1, 3}) {
    const Schedule schedule = make_schedule({ScheduleKind::interleaved, 1, 4, chunks});
    for (const Op& op : schedule[0]) {
      EXPECT_FALSE(op.kind == OpKind::send_activation || op.kind == OpKind::receive_activation ||
                   op.kind == OpKind::send_gradient || op.kind == OpKind::receive_gradient);
    }
  }
}

TEST(Schedule, ZeroBubbleHoldsNoMoreThanTheFirstStageOfOneFOneB) {
  for (const int stages : {2, 4, 8}) {
    for (const int micro_batches : {1, 3, 8, 20}) {
      const Schedule plain = make_schedule({ScheduleKind::one_f_one_b, stages, micro_batches, 1});
      for (const OpList& list :
           make_schedule({ScheduleKind::zero_bubble, stages, micro_batches, 1})) {
        EXPECT_LE(peak_in_flight(list, 1), peak_in_flight(plain[0], 1));
      }
    }
  }
}

TEST(Schedule, UnevenChunksPeakWhereTheLargeOnesMeet) {
  // Stage 0 runs F0 F1 F0' F1' F2 B0' F3 B1' …
  const OpList list = make_schedule({ScheduleKind::interleaved, 2, 4, 2})[0];
  const std::vector<Bytes> second_larger = {Bytes(1), Bytes(10)};
  EXPECT_EQ(peak_saved(list, second_larger), Bytes(23)) << "at F2: three and two";
  const std::vector<Bytes> first_larger = {Bytes(10), Bytes(1)};
  EXPECT_EQ(peak_saved(list, first_larger), Bytes(41)) << "at F3: four and one";
}

TEST(Schedule, EvenChunksPeakAtTheirNumberInFlight) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                  ScheduleKind::interleaved, ScheduleKind::zero_bubble}) {
    const int chunks = kind == ScheduleKind::interleaved ? 2 : 1;
    const std::vector<Bytes> even(static_cast<std::size_t>(chunks), Bytes(6));
    for (const OpList& list : make_schedule({kind, 4, 8, chunks}))
      EXPECT_EQ(peak_saved(list, even), scaled(chunks * Bytes(6), peak_in_flight(list, chunks)))
          << name_of(kind);
  }
}

TEST(VerifySchedule, AcceptsEverythingThatIsMade) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                  ScheduleKind::interleaved, ScheduleKind::zero_bubble}) {
    for (int stages = 1; stages <= 9; ++stages) {
      for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        for (int chunks = 1; chunks <= 4; ++chunks) {
          const PipelineShape shape{kind, stages, micro_batches, chunks};
          if (!schedulable(shape)) continue;
          const auto fault = verify_schedule(make_schedule(shape), shape);
          EXPECT_FALSE(fault) << name_of(kind) << " p" << stages << " m" << micro_batches << " v"
                              << chunks << ": " << fault->what;
        }
      }
    }
  }
}

TEST(VerifySchedule, RejectsEveryDroppedAndEveryDoubledOperation) {
  for (const PipelineShape shape : {PipelineShape{ScheduleKind::gpipe, 3, 2, 1},
                                    PipelineShape{ScheduleKind::one_f_one_b, 3, 4, 1},
                                    PipelineShape{ScheduleKind::interleaved, 2, 4, 2},
                                    PipelineShape{ScheduleKind::interleaved, 1, 2, 2},
                                    PipelineShape{ScheduleKind::zero_bubble, 3, 4, 1}}) {
    const Schedule sound = make_schedule(shape);
    for (std::size_t stage = 0; stage < sound.size(); ++stage) {
      for (std::size_t i = 0; i < sound[stage].size(); ++i) {
        const auto at = static_cast<std::ptrdiff_t>(i);
        Schedule dropped = sound;
        dropped[stage].erase(dropped[stage].begin() + at);
        EXPECT_TRUE(verify_schedule(dropped, shape)) << "without " << stage << "/" << i;
        Schedule doubled = sound;
        doubled[stage].insert(doubled[stage].begin() + at, sound[stage][i]);
        const auto fault = verify_schedule(doubled, shape);
        ASSERT_TRUE(fault) << "twice " << stage << "/" << i;
        EXPECT_EQ(fault->stage, static_cast<int>(stage));
        EXPECT_EQ(fault->op, i + 1);
      }
    }
  }
}

TEST(VerifySchedule, NamesTheFirstFault) {
  using enum OpKind;
  const PipelineShape shape{ScheduleKind::one_f_one_b, 2, 2, 1};
  const auto fault_of = [&](auto change) {
    Schedule schedule = make_schedule(shape);
    change(schedule);
    const auto fault = verify_schedule(schedule, shape);
    return fault
               ? std::to_string(fault->stage) + "/" + std::to_string(fault->op) + " " + fault->what
               : "sound";
  };
  EXPECT_EQ(fault_of([](Schedule&) {}), "sound");
  EXPECT_EQ(fault_of([](Schedule& s) { s.pop_back(); }), "0/0 1 lists for 2 stages");
  EXPECT_EQ(fault_of([](Schedule& s) { s[1][0].micro_batch = 2; }),
            "1/0 receive_activation of chunk 0, micro-batch 2 does not exist in this shape");
  EXPECT_EQ(fault_of([](Schedule& s) { s[1].erase(s[1].begin()); }),
            "1/0 forward of chunk 0, micro-batch 0 runs before its receive_activation of chunk 0, "
            "micro-batch 0");
  EXPECT_EQ(fault_of([](Schedule& s) { s[0].erase(s[0].begin() + 1); }),
            "0/7 reduce comes before send_activation of chunk 0, micro-batch 0");
  EXPECT_EQ(fault_of([](Schedule& s) { std::swap(s[1].end()[-1], s[1].end()[-2]); }),
            "1/8 update comes before reduce");
  EXPECT_EQ(fault_of([](Schedule& s) { s[0].pop_back(); }), "0/9 the list ends without an update");
  EXPECT_EQ(fault_of([](Schedule& s) {
              s[0].insert(s[0].begin(), {receive_activation, 0, 0});
            }),
            "0/0 receive_activation of chunk 0, micro-batch 0 has no stage at its other end");
  // Stage 0 sends F0, F1; stage 1 asks for F1 first.
  EXPECT_EQ(fault_of([](Schedule& s) {
              s[1] = {{receive_activation, 0, 1},
                      {forward, 0, 1},
                      {receive_activation, 0, 0},
                      {forward, 0, 0},
                      {backward, 0, 0},
                      {send_gradient, 0, 0},
                      {backward, 0, 1},
                      {send_gradient, 0, 1},
                      {reduce},
                      {update}};
            }),
            "1/0 receive_activation of chunk 0, micro-batch 1 meets chunk 0, micro-batch 0, which "
            "stage 0 sent before it");
  // Stage 0 wants B0 before it sends F1; stage 1 wants F1 before it runs B0.
  EXPECT_EQ(fault_of([](Schedule& s) {
              s[0] = {{forward, 0, 0},
                      {send_activation, 0, 0},
                      {receive_gradient, 0, 0},
                      {backward, 0, 0},
                      {forward, 0, 1},
                      {send_activation, 0, 1},
                      {receive_gradient, 0, 1},
                      {backward, 0, 1},
                      {reduce},
                      {update}};
              s[1] = {{receive_activation, 0, 0},
                      {forward, 0, 0},
                      {receive_activation, 0, 1},
                      {forward, 0, 1},
                      {backward, 0, 0},
                      {send_gradient, 0, 0},
                      {backward, 0, 1},
                      {send_gradient, 0, 1},
                      {reduce},
                      {update}};
            }),
            "0/2 deadlock: receive_gradient of chunk 0, micro-batch 0 waits for ever");
}

TEST(VerifySchedule, KeepsTheChunksOfAChannelInOrder) {
  const PipelineShape shape{ScheduleKind::interleaved, 2, 2, 2};
  Schedule schedule = make_schedule(shape);
  // Stage 0 sends chunk 0 of micro-batch 0 first.
  OpList& list = schedule[1];
  const auto early = std::find(list.begin(), list.end(), Op{OpKind::receive_activation, 1, 0});
  std::rotate(list.begin(), early, early + 1);
  const auto fault = verify_schedule(schedule, shape);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->stage, 1);
  EXPECT_EQ(fault->op, 0u);
}

}  // namespace
}  // namespace braid
