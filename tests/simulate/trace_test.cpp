#include "planner/simulate/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/core/json.h"

namespace braid {
namespace {

std::vector<StageTimes> slow_links(int stages) {
  const StageTimes stage{Seconds(1e-3), Seconds(1e-3), Seconds(5e-4),
                         Seconds(1e-3), Seconds(2e-3), Seconds(4e-3)};
  return std::vector<StageTimes>(static_cast<std::size_t>(stages), stage);
}

Json trace_of(const PipelineShape& shape) {
  const Simulation simulation = simulate(shape, slow_links(shape.stages), {.events = true});
  return parse_json(trace_json(simulation, shape), "trace.json");
}

TEST(Trace, SlicesOfAThreadNeverOverlap) {
  for (const PipelineShape shape : {PipelineShape{ScheduleKind::gpipe, 3, 6, 1},
                                    PipelineShape{ScheduleKind::one_f_one_b, 4, 8, 1},
                                    PipelineShape{ScheduleKind::interleaved, 2, 4, 3},
                                    PipelineShape{ScheduleKind::zero_bubble, 4, 9, 1}}) {
    std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
    const Json trace = trace_of(shape);
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const double start = event.at("ts");
      threads[{event.at("pid"), event.at("tid")}].emplace_back(
          start, start + event.at("dur").get<double>());
    }
    EXPECT_GE(threads.size(), static_cast<std::size_t>(3 * shape.stages));
    for (auto& [thread, slices] : threads) {
      std::sort(slices.begin(), slices.end());
      for (std::size_t i = 1; i < slices.size(); ++i) {
        EXPECT_GE(slices[i].first, slices[i - 1].second - 1e-6)  // microseconds: rounding only
            << name_of(shape.schedule) << " stage " << thread.first << " thread " << thread.second;
      }
    }
  }
}

TEST(Trace, NamesWhatAReaderLooksFor) {
  std::set<std::string> names, threads, processes;
  const Json trace = trace_of({ScheduleKind::zero_bubble, 2, 4, 1});
  for (const Json& event : trace.at("traceEvents")) {
    const std::string name = event.at("name");
    if (event.at("ph") == "X") names.insert(name);
    if (name == "thread_name") threads.insert(event.at("args").at("name"));
    if (name == "process_name") processes.insert(event.at("args").at("name"));
  }
  for (const char* name : {"F3", "B3", "W3", "send act 3", "send grad 3", "receive act 0",
                           "receive grad 0", "reduce", "update"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  for (const char* name : {"compute", "send", "receive"}) {
    EXPECT_TRUE(threads.contains(name)) << name;
  }
  EXPECT_EQ(processes, (std::set<std::string>{"stage 0", "stage 1"}));
}

TEST(Trace, ChunksAreToldApart) {
  const std::string text =
      trace_json(simulate({ScheduleKind::interleaved, 2, 2, 2}, slow_links(2), {.events = true}),
                 {ScheduleKind::interleaved, 2, 2, 2});
  EXPECT_NE(text.find("\"F1 chunk 0\""), std::string::npos);
  EXPECT_NE(text.find("\"F1 chunk 1\""), std::string::npos);
}

TEST(Trace, TimesAreMicroseconds) {
  const Json trace = trace_of({ScheduleKind::one_f_one_b, 1, 1, 1});
  const Json& events = trace.at("traceEvents");
  EXPECT_EQ(events.at(0).at("name"), "F0");
  EXPECT_DOUBLE_EQ(events.at(0).at("dur"), 1000);
  EXPECT_EQ(events.at(1).at("name"), "B0");
  EXPECT_DOUBLE_EQ(events.at(1).at("ts"), 1000);
  EXPECT_DOUBLE_EQ(events.at(1).at("dur"), 1500);
}

}  // namespace
}  // namespace braid
