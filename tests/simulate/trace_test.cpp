#include "planner/simulate/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/core/json.h"
#include "planner/simulate/price_plan.h"
#include "planner/simulate/trace_writer.h"
#include "tests/plan/sample_plan.h"

namespace braid {
namespace {

// One millisecond of compute each way, half of it again for weights, and a little of everything
// else; links so slow that messages overlap.
Plan priced_plan(const PipelineShape& shape) {
  Plan plan = sample_plan(shape);
  for (StagePrediction& stage : plan.prediction.stages) {
    stage = {};
    stage.terms.forward_compute = stage.terms.backward_input_compute = 1e-3;
    stage.terms.backward_weight_compute = 5e-4;
    stage.terms.forward_tensor = stage.terms.backward_tensor = 2e-4;
    stage.terms.reduce = 1e-3;
    stage.terms.update = 2e-3;
    stage.times = {Seconds(stage.terms.forward()),
                   Seconds(stage.terms.backward_input()),
                   Seconds(stage.terms.backward_weight()),
                   Seconds(stage.terms.once_reduce()),
                   Seconds(stage.terms.update),
                   Seconds(4e-3)};
  }
  return plan;
}

std::string text_of(const Plan& plan) {
  return trace_json(simulate(plan.shape, stage_times(plan.prediction), {.events = true}), plan);
}

Json trace_of(const PipelineShape& shape) {
  return parse_json(text_of(priced_plan(shape)), "trace.json");
}

using Track = std::pair<int, int>;
std::map<Track, std::vector<std::pair<double, double>>> tracks_of(const Json& trace) {
  std::map<Track, std::vector<std::pair<double, double>>> tracks;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double start = event.at("ts");
    tracks[{event.at("pid"), event.at("tid")}].emplace_back(start,
                                                            start + event.at("dur").get<double>());
  }
  return tracks;
}

TEST(Trace, SlicesOfATrackNeverOverlap) {
  for (const PipelineShape shape : {PipelineShape{ScheduleKind::gpipe, 4, 6, 1},
                                    PipelineShape{ScheduleKind::one_f_one_b, 4, 8, 1},
                                    PipelineShape{ScheduleKind::interleaved, 2, 4, 2},
                                    PipelineShape{ScheduleKind::zero_bubble, 4, 9, 1}}) {
    auto tracks = tracks_of(trace_of(shape));
    EXPECT_GE(tracks.size(), static_cast<std::size_t>(2 * shape.stages));
    for (auto& [track, slices] : tracks) {
      std::sort(slices.begin(), slices.end());
      for (std::size_t i = 1; i < slices.size(); ++i) {
        EXPECT_GE(slices[i].first, slices[i - 1].second - 1e-6)  // microseconds: rounding only
            << name_of(shape.schedule) << " stage " << track.first << " track " << track.second;
      }
    }
  }
}

TEST(Trace, NamesWhatAReaderLooksFor) {
  std::set<std::string> names, tracks, processes;
  const Json trace = trace_of({ScheduleKind::zero_bubble, 2, 4, 1});
  for (const Json& event : trace.at("traceEvents")) {
    const std::string name = event.at("name");
    if (event.at("ph") == "X") names.insert(name);
    if (name == "thread_name") tracks.insert(event.at("args").at("name"));
    if (name == "process_name") processes.insert(event.at("args").at("name"));
  }
  for (const char* name :
       {"blocks.3 F3", "blocks.3 B3", "blocks.7 W3", "blocks.3 tensor", "send act 3", "send grad 3",
        "receive act 0", "receive grad 0", "reduce", "update"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  for (const char* name : {"compute", "communication"}) EXPECT_TRUE(tracks.contains(name)) << name;
  EXPECT_EQ(processes, (std::set<std::string>{"stage 0", "stage 1"}));
}

TEST(Trace, LayersThatDoNotCommunicateHaveNoSlicesOfIt) {
  const std::string text = text_of(priced_plan({ScheduleKind::one_f_one_b, 1, 1, 1}));
  EXPECT_NE(text.find("\"blocks.0 tensor\""), std::string::npos);
  EXPECT_EQ(text.find("\"embedding tensor\""), std::string::npos);  // tp1 in the sample
}

TEST(Trace, MessagesOfChunksAreToldApart) {
  const std::string text = text_of(priced_plan({ScheduleKind::interleaved, 2, 2, 2}));
  EXPECT_NE(text.find("\"send act 1 chunk 0\""), std::string::npos);
  EXPECT_NE(text.find("\"send act 1 chunk 1\""), std::string::npos);
}

TEST(Trace, LayersFillTheirOperation) {
  const Json trace = trace_of({ScheduleKind::one_f_one_b, 1, 1, 1});
  double forward = 0, tensor = 0, end = 0;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    if (event.at("cat") == "forward") forward += event.at("dur").get<double>();
    if (event.at("cat") == "tensor") tensor += event.at("dur").get<double>();
    end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  EXPECT_NEAR(forward, 1000, 1e-6);  // microseconds
  EXPECT_NEAR(tensor, 400, 1e-6);
  EXPECT_NEAR(end, 1200 + 1700 + 1000 + 2000, 1e-6);
}

TEST(TraceWriter, CommunicationBesideEachOtherGetsTracksOfItsOwn) {
  const auto slice = [](const char* name, double start, double end) {
    return TraceSlice{.name = name, .category = "x", .start = Seconds(start), .end = Seconds(end)};
  };
  const TraceProcess process{
      .name = "rank 0",
      .compute = {slice("a", 0, 1)},
      .communication = {slice("late", 2, 3), slice("b", 0, 2), slice("c", 1, 3)}};
  const std::vector<std::string> events = {trace_events(0, process)};
  const Json trace = parse_json(trace_file(events), "trace");
  const auto tracks = tracks_of(trace);
  EXPECT_EQ(tracks.at({0, 0}).size(), 1U);
  EXPECT_EQ(tracks.at({0, 1}).size(), 2U);  // b, late
  EXPECT_EQ(tracks.at({0, 2}).size(), 1U);  // c
}

TEST(TraceWriter, NamesWithQuotesAndBrokenTextStayJson) {
  const TraceProcess process{.name = "rank \"0\"\n\xff", .compute = {}, .communication = {}};
  const std::vector<std::string> events = {trace_events(0, process)};
  EXPECT_NO_THROW(parse_json(trace_file(events), "trace"));
}

}  // namespace
}  // namespace braid
