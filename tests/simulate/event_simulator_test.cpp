#include "planner/simulate/event_simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tests/simulate/random_problems.h"

namespace braid {
namespace {

using enum ScheduleKind;

StageTimes stage(double f, double bi, double w, double r = 0, double u = 0, double x = 0) {
  return {Seconds(f), Seconds(bi), Seconds(w), Seconds(r), Seconds(u), Seconds(x)};
}
Message seconds(double moving, std::int64_t bytes = 0) {
  return {.moving = Seconds(moving), .bytes = Bytes(bytes)};
}
Pace slower(double factor) { return {factor, factor, factor, factor}; }

double iteration(const EventInput& input) { return simulate_events(input).iteration.value(); }

// Every device has a link of its own for what it sends and one for what it receives.
Links own_links(int devices, double bandwidth) {
  Links links;
  for (int i = 0; i < devices; ++i) {
    links.capacities.insert(links.capacities.end(), 2, BytesPerSecond(bandwidth));
    links.ports.push_back({.node_out = {2 * i}, .node_in = {2 * i + 1}});
  }
  return links;
}

TEST(EventSimulator, PlaysTheQuickSimulatorsTimesWhenNothingElseIsGiven) {
  for (const auto& [shape, stages] : random_pipelines(400, 1)) {
    const Simulation quick = simulate(shape, stages, {.events = true});
    const EventSimulation full =
        simulate_events({.shape = shape, .times = stages}, {.events = true});
    EXPECT_EQ(full.iteration, quick.iteration) << name_of(shape.schedule);
    ASSERT_EQ(full.classes.size(), 1U);
    EXPECT_EQ(full.classes[0].events, quick.events) << name_of(shape.schedule);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const StageUse& a = full.classes[0].stages[i];
      const StageUse& b = quick.stages[i];
      EXPECT_NEAR(a.forward.value(), b.forward.value(), 1e-9);
      EXPECT_NEAR(a.backward_input.value(), b.backward_input.value(), 1e-9);
      EXPECT_NEAR(a.backward_weight.value(), b.backward_weight.value(), 1e-9);
      EXPECT_NEAR(a.reduce.value(), b.reduce.value(), 1e-9);
      EXPECT_NEAR(a.update.value(), b.update.value(), 1e-9);
      EXPECT_NEAR(a.bubble.value(), b.bubble.value(), 1e-9);
    }
  }
}

TEST(EventSimulator, TimesByHand) {
  struct Case {
    const char* fact;
    EventInput input;
    double iteration;
  };
  const PipelineShape lone{one_f_one_b, 1, 1, 1}, twice{one_f_one_b, 1, 2, 1};
  const PipelineShape two{one_f_one_b, 2, 1, 1};
  const auto beside = [](double at, double takes, int chunk = 0) {
    return PassCollective{.chunk = chunk, .at = at, .message = seconds(takes)};
  };
  const Case cases[] = {
      // Backward 1-11; the first sum 6-9, the second 11-14.
      {"a sum starts as soon as its gradients are there",
       {.shape = lone,
        .times = {stage(1, 4, 6)},
        .streams = {{.reductions = {beside(0.5, 3), beside(1, 3)}}}},
       14},
      // 6-13 and 13-16: the stream plays one after the other.
      {"sums queue on their stream",
       {.shape = lone,
        .times = {stage(1, 4, 6)},
        .streams = {{.reductions = {beside(0.5, 7), beside(1, 3)}}}},
       16},
      // Backwards 1-11 and 12-22; one sum of 3 behind the second.
      {"reductions run once, in the last backward",
       {.shape = twice, .times = {stage(1, 4, 6)}, .streams = {{.reductions = {beside(1, 3)}}}},
       25},
      // Backward 0-10 and 10-20: sums 10-14 and 20-24.
      {"scatters run in every backward",
       {.shape = twice, .times = {stage(0, 4, 6)}, .streams = {{.scatters = {beside(1, 4)}}}},
       24},
      // First gather 0-1, then forward 1-3 beside the second gather, 3-5, backward 5-15.
      {"a gather is hidden by the layer before",
       {.shape = lone,
        .times = {stage(4, 4, 6)},
        .streams = {{.forward_gathers = {beside(0, 1), beside(0.5, 1)}}}},
       15},
      // 0-1, forward 1-3, second gather 1-6, forward 6-8, backward 8-18.
      {"a gather that takes longer is waited for",
       {.shape = lone,
        .times = {stage(4, 4, 6)},
        .streams = {{.forward_gathers = {beside(0, 1), beside(0.5, 5)}}}},
       18},
      // 0-1, forward 1-3 beside the second, then 3-4; the third is asked for at 3 and comes at 4.5.
      {"a gather is asked for one layer ahead, not earlier",
       {.shape = lone,
        .times = {stage(4, 4, 6)},
        .streams = {{.forward_gathers = {beside(0, 1), beside(0.5, 1), beside(0.75, 1.5)}}}},
       15.5},
      // Update 11-13, then both one after the other.
      {"updated weights travel behind the update",
       {.shape = lone,
        .times = {stage(1, 4, 6, 0, 2)},
        .streams = {{.regathers = {seconds(3), seconds(4)}}}},
       20},
      // Stage 1: B 2-3, W 3-4, sum 4-13. Stage 0: B 3-4, W 4-5, sum 5-7.
      {"a weight gradient of zero-bubble carries the reduction",
       {.shape = {zero_bubble, 2, 1, 1},
        .times = {stage(1, 1, 1), stage(1, 1, 1)},
        .streams = {{.reductions = {beside(1, 2)}}, {.reductions = {beside(1, 9)}}}},
       13},
      // F 0-1, message 1-1.5 and 1.5-3.5, F 3.5-4.5, B 4.5-6.5, message 6.5-9, B 9-11.
      {"a message takes its latency and its bytes",
       {.shape = two,
        .times = {stage(1, 1, 1), stage(1, 1, 1)},
        .streams = {{.transfer = Message{.latency = Seconds(0.5), .moving = Seconds(2)}}, {}}},
       11},
      // Forwards 0-2, chunk 1 backward 2-4 with its sum 4-9; chunk 0's, ready at 6, follows 9-10.
      {"each chunk has sums of its own",
       {.shape = {interleaved, 1, 1, 2},
        .times = {stage(2, 2, 2)},
        .streams = {{.reductions = {beside(1, 1, 0), beside(1, 5, 1)}}}},
       10},
  };
  for (const Case& c : cases) EXPECT_NEAR(iteration(c.input), c.iteration, 1e-12) << c.fact;
}

TEST(EventSimulator, ComputeBesideASumRunsSlowerAndSoDoesTheSum) {
  // The sum begins with backward: 10 of compute beside 6 of communication.
  EventInput input{.shape = {one_f_one_b, 1, 1, 1},
                   .times = {stage(0, 4, 6)},
                   .streams = {{.reductions = {{.at = 0, .message = seconds(6)}}}}};
  input.collective_overlap = {.compute = 1.5, .communication = 1.25};
  const EventSimulation s = simulate_events(input);
  EXPECT_NEAR(s.iteration.value(), input.collective_overlap.together(10, 6), 1e-12);
  // The sum lasts 7.5; meanwhile compute advances by 5.
  EXPECT_NEAR(s.iteration.value(), 12.5, 1e-12);
  EXPECT_NEAR(s.devices[0].slowed_compute.value(), 2.5, 1e-12);
  EXPECT_NEAR(s.devices[0].slowed_communication.value(), 1.5, 1e-12);
  EXPECT_NEAR(s.devices[0].reduce.value(), 0, 1e-12);
}

TEST(EventSimulator, ASlowStageStretchesExactlyItsPart) {
  const PipelineShape shape{one_f_one_b, 1, 8, 1};
  const StageTimes times = stage(1, 2, 3, 4, 5);
  const EventInput slow{.shape = shape, .times = {times}, .replicas = {{.paces = {slower(1.5)}}}};
  EXPECT_NEAR(iteration(slow), 1.5 * (8 * 6 + 5) + 4, 1e-12);
}

TEST(EventSimulator, AStragglersReplicasWaitForItAtTheReduction) {
  const EventInput input{
      .shape = {one_f_one_b, 1, 4, 1},
      .times = {stage(1, 1, 1, 0, 2)},
      .streams = {{.reductions = {{.at = 1, .message = seconds(3)}}}},
      .replicas = {{.pipelines = 7}, {.pipelines = 1, .paces = {{1.5, 1.5, 1.5, 1}}}}};
  const EventSimulation s = simulate_events(input);
  EXPECT_NEAR(s.iteration.value(), 18 + 3 + 2, 1e-12);
  EXPECT_NEAR(s.devices[0].replicas.value(), 6, 1e-12);
  EXPECT_NEAR(s.devices[0].reduce.value(), 3, 1e-12);
  EXPECT_NEAR(s.devices[1].replicas.value(), 0, 1e-12);
  EXPECT_NEAR(s.devices[1].forward.value(), 6, 1e-12);
}

TEST(EventSimulator, OneSlowPipelineTakesAsLongAsIfAllWereSlow) {
  for (auto& [shape, stages] : random_pipelines(60, 5)) {
    for (StageTimes& times : stages) times.reduce = Seconds();
    std::vector<Pace> paces(stages.size());
    paces[stages.size() / 2] = slower(1.7);
    EventInput all{.shape = shape, .times = stages, .replicas = {{.paces = paces}}};
    EventInput one = all;
    one.replicas = {{.pipelines = 15}, {.pipelines = 1, .paces = paces}};
    EXPECT_EQ(iteration(one), iteration(all)) << name_of(shape.schedule);
    EXPECT_GE(iteration(all), simulate(shape, stages).iteration.value());
  }
}

TEST(EventSimulator, TwoStagesThatShareANetworkCardTakeTwiceAsLong) {
  // Two pipelines send 10 bytes each at once: 2 s alone, 4 s over one card.
  const auto input = [](bool one_card) {
    EventInput e{.shape = {gpipe, 2, 1, 1},
                 .times = {stage(1, 1, 1), stage(1, 1, 1)},
                 .streams = {{.transfer = seconds(2, 10)}, {}},
                 .replicas = {{}, {}}};
    e.links.capacities.assign(4, BytesPerSecond(5));
    for (int i = 0; i < 4; ++i) e.links.ports.push_back({.node_out = {one_card ? i % 2 : i}});
    return e;
  };
  EXPECT_NEAR(iteration(input(false)), 1 + 2 + 3 + 2 + 2, 1e-12);
  EXPECT_NEAR(iteration(input(true)), 1 + 4 + 3 + 4 + 2, 1e-12);
  const EventSimulation s = simulate_events(input(true));
  EXPECT_NEAR(s.devices[0].waited_for_links.value(), 4, 1e-12);  // it sends, and it receives
  EXPECT_NEAR(s.devices[0].transfer.value(), 4, 1e-12);
}

TEST(EventSimulator, EqualRanksBehindOneCardCountAsMany) {
  EventInput e{.shape = {gpipe, 2, 1, 1},
               .times = {stage(1, 1, 1), stage(1, 1, 1)},
               .streams = {{.transfer = seconds(2, 10)}, {}}};
  e.links = own_links(2, 5);
  EXPECT_NEAR(iteration(e), 10, 1e-12);
  for (DevicePorts& ports : e.links.ports) ports.node_out.ranks = 4;
  EXPECT_NEAR(iteration(e), 1 + 8 + 3 + 8 + 2, 1e-12);
}

TEST(EventSimulator, MessagesOfOneDirectionFollowEachOther) {
  // GPipe's first stage has both activations after 2 s; each message takes 3.
  EventInput e{.shape = {gpipe, 2, 2, 1},
               .times = {stage(1, 0, 0), stage(0, 0, 0)},
               .streams = {{.transfer = seconds(3, 3)}, {}}};
  e.links = own_links(2, 1);
  const EventSimulation s = simulate_events(e, {.events = true});
  std::vector<double> arrivals;
  for (const SimulationEvent& event : s.classes[0].events)
    if (event.op.kind == OpKind::send_activation) arrivals.push_back(event.end.value());
  EXPECT_EQ(arrivals, (std::vector<double>{4, 7}));
  EXPECT_NEAR(s.devices[0].waited_for_links.value(), 2, 1e-12);
}

TEST(EventSimulator, ATransferAndASumShareTheDevicesLink) {
  EventInput e{.shape = {zero_bubble, 2, 1, 1},
               .times = {stage(1, 1, 1), stage(1, 1, 1)},
               .streams = {{.transfer = seconds(1, 10)},
                           {.scatters = {{.at = 0, .message = seconds(2, 20)}}}}};
  // F 0-1, message 1-2, F 2-3, B 3-4; then the gradient 4-6 beside the sum 4-7; B 6-7, W 7-8.
  e.links = own_links(2, 10);
  EXPECT_NEAR(iteration(e), 8, 1e-12);
  e.links.capacities.assign(4, BytesPerSecond(20));
  EXPECT_NEAR(iteration(e), 7, 1e-12);
}

// Links, queues and sums on random pipelines.
EventInput busy_input(const RandomPipeline& problem, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto real = [&](double high) {
    return std::uniform_real_distribution<double>(0, high)(engine);
  };
  EventInput e{.shape = problem.shape, .times = problem.stages};
  for (int i = 0; i < problem.shape.stages; ++i) {
    StageStreams s;
    s.transfer = {.latency = Seconds(real(0.1)), .moving = Seconds(real(1)), .bytes = Bytes(1000)};
    for (int chunk = 0; chunk < problem.shape.chunks; ++chunk) {
      for (const double at : {0.3, 1.0})
        s.reductions.push_back({chunk, at, seconds(real(2), 3000)});
      s.scatters.push_back({chunk, 0.5, seconds(real(0.3), 700)});
      for (const double at : {0.0, 0.5}) {
        s.forward_gathers.push_back({chunk, at, seconds(real(0.2), 500)});
        s.backward_gathers.push_back({chunk, at, seconds(real(0.2), 500)});
      }
    }
    s.regathers = {seconds(real(1), 2000)};
    e.streams.push_back(s);
  }
  std::vector<Pace> paces(problem.stages.size());
  paces.back() = slower(1 + real(1));
  e.replicas = {{.pipelines = 3}, {.pipelines = 1, .paces = paces}};
  return e;
}

// Neighbouring stages share their cards, both classes too.
Links shared_links(const EventInput& e, double bandwidth) {
  Links links;
  const int devices = e.shape.stages * 2;
  links.capacities.assign(static_cast<std::size_t>(devices), BytesPerSecond(bandwidth));
  for (int i = 0; i < devices; ++i) {
    const int card = i % e.shape.stages / 2 * 2;
    links.ports.push_back({.node_out = {card}, .node_in = {card + 1}});
  }
  return links;
}

TEST(EventSimulator, PartsOfADeviceAddUpToTheIteration) {
  std::uint64_t seed = 0;
  for (const RandomPipeline& problem : random_pipelines(100, 2)) {
    EventInput e = busy_input(problem, ++seed);
    e.links = shared_links(e, 4000);
    e.transfer_overlap = {1.1, 1.3};
    e.collective_overlap = {1.2, 1.4};
    const EventSimulation s = simulate_events(e, {.events = true});
    for (const DeviceUse& d : s.devices) {
      EXPECT_NEAR(d.total().value(), s.iteration.value(), 1e-9);
      for (const Seconds part : {d.forward, d.backward_input, d.backward_weight, d.update,
                                 d.transfer, d.gather, d.reduce, d.replicas, d.bubble,
                                 d.slowed_compute, d.slowed_communication, d.waited_for_links})
        EXPECT_GE(part.value(), -1e-9);
    }
    const EventSimulation again = simulate_events(e, {.events = true});
    EXPECT_EQ(again.iteration, s.iteration);
    EXPECT_EQ(again.collectives, s.collectives);
    EXPECT_EQ(again.classes[1].events, s.classes[1].events);
  }
}

TEST(EventSimulator, SharedLinksNeverSpeedAnythingUp) {
  std::uint64_t seed = 0;
  int slower_ones = 0;
  for (const RandomPipeline& problem : random_pipelines(200, 3)) {
    EventInput e = busy_input(problem, ++seed);
    const EventSimulation alone = simulate_events(e, {.events = true});
    e.links = shared_links(e, 4000);
    const EventSimulation shared = simulate_events(e, {.events = true});
    EXPECT_GE(shared.iteration.value(), alone.iteration.value() * (1 - 1e-12));
    slower_ones += shared.iteration > alone.iteration ? 1 : 0;
    for (std::size_t c = 0; c < alone.classes.size(); ++c)
      for (std::size_t i = 0; i < alone.classes[c].events.size(); ++i)
        EXPECT_GE(shared.classes[c].events[i].end.value(),
                  alone.classes[c].events[i].end.value() - 1e-9);
  }
  EXPECT_GT(slower_ones, 100);
}

TEST(EventSimulator, FasterLinksAreNeverSlower) {
  std::uint64_t seed = 0;
  for (const RandomPipeline& problem : random_pipelines(200, 4)) {
    EventInput e = busy_input(problem, ++seed);
    double before = 0;
    for (const double bandwidth : {500.0, 1000.0, 2000.0, 4000.0, 1e9}) {
      e.links = shared_links(e, bandwidth);
      const double now = iteration(e);
      if (before > 0) {
        EXPECT_LE(now, before * (1 + 1e-12)) << bandwidth;
      }
      before = now;
    }
  }
}

TEST(EventSimulator, AMessagesTimeFollowsItsSize) {
  const Curve curve({{0, 1e-5}, {1e6, 3e-5}, {1e9, 1e-2}});
  const Message m = message_of(Bytes(500'000), curve, Reach::network);
  EXPECT_DOUBLE_EQ(m.latency.value(), 1e-5);
  EXPECT_DOUBLE_EQ(m.alone().value(), 2e-5);
  EXPECT_EQ(m.bytes, Bytes(500'000));
  EXPECT_EQ(m.reach, Reach::network);
}

// 16,384 devices: 32 stages of 512, of which one pipeline is slow. Everything is switched on.
TEST(EventSimulator, PlaysSixteenThousandDevicesInSeconds) {
  const PipelineShape shape{one_f_one_b, 32, 1000, 1};
  EventInput e{.shape = shape, .times = std::vector<StageTimes>(32, stage(1, 1, 1, 0, 1, 0.1))};
  for (int i = 0; i < 32; ++i) {
    StageStreams s;
    s.transfer = {.latency = Seconds(0.01), .moving = Seconds(0.1), .bytes = Bytes(100)};
    for (const double at : {0.25, 0.5, 0.75, 1.0})
      s.reductions.push_back({.at = at, .message = seconds(0.5, 500)});
    e.streams.push_back(s);
  }
  std::vector<Pace> paces(32);
  paces[7] = slower(1.2);
  e.replicas = {{.pipelines = 63}, {.pipelines = 1, .paces = paces}};
  e.links = own_links(64, 1000);
  e.transfer_overlap = e.collective_overlap = {1.1, 1.1};
  const auto start = std::chrono::steady_clock::now();
  const EventSimulation s = simulate_events(e);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", static_cast<int>(took.count() * 1e3));
  EXPECT_GT(s.iteration, Seconds(3600));
  EXPECT_LT(took.count(), 10);  // a quiet machine takes a tenth of it
}

}  // namespace
}  // namespace braid
