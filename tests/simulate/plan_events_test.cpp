#include "planner/simulate/plan_events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/core/json.h"
#include "planner/cost/make_cost_model.h"
#include "planner/simulate/price_plan.h"
#include "planner/simulate/trace.h"
#include "tests/plan/sample_plan.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

Plan priced(Plan plan) {
  const auto cost = make_cost_model({.precision = plan.precision,
                                     .gradient_precision = plan.gradient_precision,
                                     .global_batch = plan.global_batch},
                                    plan.model, plan.cluster, nullptr);
  plan.prediction = price_plan(plan, *cost);
  return plan;
}

Plan uniform_plan(const PipelineShape& shape, const Strategy& strategy) {
  Plan plan = sample_plan(shape);
  for (StagePlan& stage : plan.stages) std::ranges::fill(stage.strategies, strategy);
  return priced(plan);
}

TEST(PlanEvents, WithoutOptionsAPlanTakesWhatItWasPricedAt) {
  PlanDice dice(11);
  for (int i = 0; i < 150; ++i) {
    const Plan plan = priced(dice.plan());
    EXPECT_EQ(simulate_events(event_input(plan, {})).iteration, plan.prediction.iteration);
  }
}

TEST(PlanEvents, StreamsTakeWhatTheClosedFormsFoundThemToTake) {
  // Latencies are parts of the seconds, so that only their order on the streams may differ.
  PlanDice dice(12);
  for (int i = 0; i < 150; ++i) {
    const Plan plan = priced(dice.plan());
    const EventInput input = event_input(plan, {.contention = true});
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const LayerTime& t = plan.prediction.stages[s].terms;
      const StageStreams& streams = input.streams[s];
      double gathers = 0, sums = 0, regathers = 0;
      for (const auto* list :
           {&streams.forward_gathers, &streams.backward_gathers, &streams.scatters})
        for (const PassCollective& c : *list) gathers += c.message.alone().value();
      for (const PassCollective& c : streams.reductions) sums += c.message.alone().value();
      for (const Message& m : streams.regathers) regathers += m.alone().value();
      if (gathers > 0) {
        EXPECT_NEAR(gathers, t.forward_gather + t.backward_gather + t.hidden_gather, 1e-12);
      }
      if (sums > 0) {
        EXPECT_NEAR(sums, t.reduce + t.hidden_reduce, 1e-12);
      }
      if (regathers > 0) {
        EXPECT_NEAR(regathers, t.regather, 1e-12);
      }
    }
  }
}

TEST(PlanEvents, AStragglerStretchesTheComputeOfItsStage) {
  const Plan plan = uniform_plan({ScheduleKind::one_f_one_b, 1, 4, 1}, {.tp = 2, .dp = 4});
  const LayerTime& t = plan.prediction.stages[0].terms;
  const double compute =
      t.forward_compute + t.backward_input_compute + t.recompute + t.backward_weight_compute;
  const EventInput input = event_input(plan, {.stragglers = {{5, 1.5}}});
  ASSERT_EQ(input.replicas.size(), 2U);
  EXPECT_EQ(input.replicas[0].pipelines, 3);
  EXPECT_EQ(input.replicas[1].pipelines, 1);
  EXPECT_NEAR(simulate_events(input).iteration.value(),
              plan.prediction.iteration.value() + 0.5 * (4 * compute + t.update), 1e-12);
}

TEST(PlanEvents, StragglersOfOnePipelineAreOneClass) {
  // Ranks 0 and 1 are a tensor group; 2 and 3 the next replica.
  const Plan plan = uniform_plan({ScheduleKind::one_f_one_b, 2, 4, 1}, {.tp = 2, .dp = 2});
  EXPECT_EQ(event_input(plan, {.stragglers = {{0, 1.2}, {1, 1.5}}}).replicas.size(), 2U);
  EXPECT_EQ(event_input(plan, {.stragglers = {{0, 1.2}, {2, 1.5}}}).replicas.size(), 2U);
  EXPECT_EQ(event_input(plan, {.stragglers = {{0, 1.2}, {2, 1.2}}}).replicas.size(), 1U);
  const double once =
      simulate_events(event_input(plan, {.stragglers = {{1, 1.5}}})).iteration.value();
  const EventInput both = event_input(plan, {.stragglers = {{0, 1.2}, {1, 1.5}}});
  EXPECT_EQ(simulate_events(both).iteration.value(), once);
}

TEST(PlanEvents, PipelinesKeepTensorGroupsTogetherAndReplicasApart) {
  PlanDice dice(13);
  for (int i = 0; i < 300; ++i) {
    const Plan plan = dice.plan();
    const Mesh mesh = plan.mesh();
    const Pipelines pipelines = independent_pipelines(plan);
    const auto of = [&](int device) {
      return pipelines.of_device[static_cast<std::size_t>(device)];
    };
    std::set<int> seen;
    for (int device = 0; device < mesh.devices; ++device) {
      seen.insert(of(device));
      const int stage = stage_of(device, mesh);
      for (const Strategy& s : plan.stages[static_cast<std::size_t>(stage)].strategies) {
        for (const Axis axis : {Axis::tensor, Axis::context})
          for (const int peer : peers(device, axis, mesh, s)) EXPECT_EQ(of(peer), of(device));
      }
      if (stage + 1 < mesh.stages) {
        EXPECT_EQ(of(device + stage_distance(mesh)), of(device));
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), pipelines.count);
  }
  const Plan plan = uniform_plan({ScheduleKind::one_f_one_b, 2, 4, 1}, {.tp = 2, .dp = 2});
  EXPECT_EQ(independent_pipelines(plan).count, 2);
}

TEST(PlanEvents, AShareOfStragglersIsSpreadOverAllRanks) {
  const auto ranks = [](double share, int devices) {
    std::vector<int> list;
    for (const Straggler& s : spread_stragglers(share, 1.1, devices)) list.push_back(s.rank);
    return list;
  };
  EXPECT_EQ(ranks(0.25, 16), (std::vector<int>{0, 4, 8, 12}));
  EXPECT_EQ(ranks(0.001, 16), (std::vector<int>{0}));
  EXPECT_EQ(ranks(1, 3), (std::vector<int>{0, 1, 2}));
}

TEST(PlanEvents, PipelinesOnFasterDevicesWaitForTheOthers) {
  Plan plan = sample_plan({ScheduleKind::one_f_one_b, 1, 4, 1});
  std::ranges::fill(plan.stages[0].strategies, Strategy{.tp = 2, .dp = 4});
  plan.cluster.device_types.push_back(plan.cluster.device_types[0]);
  plan.cluster.device_types[1].peak_bf16 = FlopsPerSecond(4 * 312e12);
  NodeGroup half = plan.cluster.groups[0];
  half.devices = 4;
  plan.cluster.groups = {half, half};
  plan.cluster.groups[1].device_type = 1;
  plan = priced(plan);
  const EventInput input = event_input(plan, {.device_types = true});
  ASSERT_EQ(input.replicas.size(), 2U);
  EXPECT_EQ(input.replicas[0].pipelines, 2);
  const EventSimulation s = simulate_events(input);
  EXPECT_EQ(s.iteration, plan.prediction.iteration);
  const LayerTime& t = plan.prediction.stages[0].terms;
  EXPECT_NEAR((s.devices[1].backward_weight - s.devices[0].backward_weight).value(),
              4 * 0.75 * t.backward_weight_compute, 1e-12);
  EXPECT_GT(s.devices[0].bubble, s.devices[1].bubble);
}

TEST(PlanEvents, FewerNetworkCardsAreSlower) {
  Plan plan = sample_plan({ScheduleKind::one_f_one_b, 2, 4, 1});
  plan.cluster.groups[0] = {
      .count = 2, .device_type = 0, .devices = 4, .inside = plan.cluster.groups[0].inside};
  plan.cluster.between = {.bandwidth = BytesPerSecond(1e6), .latency = Seconds(1e-6)};
  plan = priced(plan);
  double before = 0;
  for (const int cards : {4, 2, 1}) {
    const EventInput input = event_input(plan, {.contention = true, .network_cards = cards});
    const double now = simulate_events(input).iteration.value();
    EXPECT_GT(now, before) << cards;
    before = now;
  }
}

TEST(PlanEvents, ATraceHasAProcessForEachStageOfEachClass) {
  const Plan plan = uniform_plan({ScheduleKind::one_f_one_b, 2, 4, 1},
                                 {.tp = 2, .dp = 2, .zero = Zero::parameters});
  const EventInput input = event_input(plan, {.contention = true, .stragglers = {{0, 1.2}}});
  const EventSimulation simulation = simulate_events(input, {.events = true});
  const Json trace = parse_json(trace_json(simulation, input, plan), "trace");
  std::set<std::string> processes, categories;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") processes.insert(event.at("args").at("name"));
    if (event.at("ph") == "X") categories.insert(event.at("cat"));
  }
  EXPECT_EQ(processes.size(), 4U);
  EXPECT_TRUE(processes.contains("stage 1 × 1 of class 1"));
  for (const char* kind : {"gather", "reduce", "transfer", "forward"})
    EXPECT_TRUE(categories.contains(kind)) << kind;
}

}  // namespace
}  // namespace braid
