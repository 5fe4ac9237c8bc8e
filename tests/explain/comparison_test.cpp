// Measured plans side by side, and the file they are kept in.

#include "planner/explain/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "tests/explain/example_plan.h"

namespace braid {
namespace {

ComparedPlan compared(std::vector<std::string> names, double predicted, double measured) {
  ComparedPlan one{.names = std::move(names), .plan = example_plan()};
  one.plan.prediction.iteration = Seconds(predicted);
  one.plan.certificate = {};
  if (measured > 0)
    one.measured = MeasuredPlan{.steps = {Seconds(measured)},
                                .seconds = Seconds(measured),
                                .stages = std::vector<StageReport>(one.plan.stages.size())};
  return one;
}

Comparison example() {
  Comparison comparison;
  comparison.task = {{"model", "example"}, {"ranks", "8"}};
  comparison.plans = {compared({"dp", "zero3"}, 2.0, 2.5), compared({"exact"}, 1.0, 1.25),
                      compared({"pp"}, 1.5, 1.5), compared({}, 1.1, 1.0), compared({"tp"}, 3.0, 0)};
  comparison.plans[4].error = "out of memory";
  comparison.missing = {{"bmw", "no such plan fits into 1 GiB"}};
  return comparison;
}

TEST(Comparison, SaysWhereTheChosenPlanStandsAndWhatItGains) {
  const ComparisonSummary s = summarise(example());
  EXPECT_EQ(s.measured, 4);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.chosen, 1U);
  EXPECT_EQ(s.regret->place, 2);
  EXPECT_NEAR(s.regret->excess, 0.25, 1e-12);
  EXPECT_EQ(s.best_baseline, 2U);  // pp: 1.5 s
  EXPECT_NEAR(*s.speed_up, 1.2, 1e-12);
  EXPECT_NEAR(*s.mean_error, (0.2 + 0.2 + 0.0 + 0.1) / 4, 1e-12);
  EXPECT_NEAR(*s.spearman, 0.8, 1e-12);
  EXPECT_FALSE(s.memory_errors.has_value());
}

TEST(Comparison, HoldsTheFullestStageAgainstTheFullestPredicted) {
  Comparison comparison = example();
  const Bytes planned = predicted_allocation(comparison.plans[0].plan);
  const auto hold = [&](std::size_t plan, Bytes first, Bytes second) {
    std::vector<StageReport>& stages = comparison.plans[plan].measured->stages;
    stages[0].held.allocated = first;
    stages[1].held.allocated = second;
  };
  hold(0, Bytes(1), Bytes(planned.value() * 2));
  hold(1, planned, Bytes(1));
  const ComparisonSummary s = summarise(comparison);
  EXPECT_NEAR(s.memory_errors->lowest, -0.5, 1e-9);
  EXPECT_NEAR(s.memory_errors->highest, 0, 1e-9);
}

TEST(Comparison, FileComesBackAsItWas) {
  Comparison comparison = example();
  comparison.plans[0].measured->stages[0].held.allocated = Bytes(5);
  comparison.plans[0].measured->stages[1].measured.emplace().compute = Seconds(2);
  const Json json = to_json(comparison);
  const Comparison again = comparison_from_json(json, "results.json");
  EXPECT_EQ(to_json(again).dump(), json.dump());
  EXPECT_EQ(again.plans[4].error, "out of memory");
  EXPECT_FALSE(again.plans[4].measured.has_value());
  EXPECT_EQ(again.missing.size(), 1U);
  Json broken = json;
  broken["plans"][0]["raport"] = 1;
  EXPECT_THROW(comparison_from_json(broken, "results.json"), Error);
}

TEST(Comparison, FileFollowsItsSchema) {
  const Json schema =
      read_json(std::filesystem::path(BRAID_SOURCE_DIR) / "schemas" / "comparison.schema.json");
  const auto expect_described = [](const Json& value, const Json& described) {
    for (const auto& [key, unused] : value.items())
      EXPECT_TRUE(described.at("properties").contains(key)) << key;
    for (const Json& key : described.value("required", Json::array()))
      EXPECT_TRUE(value.contains(key.get<std::string>())) << key;
  };
  const Json json = to_json(example());
  expect_described(json, schema);
  expect_described(json.at("summary"), schema.at("properties").at("summary"));
  for (const char* list : {"plans", "missing"})
    for (const Json& entry : json.at(list))
      expect_described(entry, schema.at("properties").at(list).at("items"));
}

TEST(Comparison, PlansThatRunAlikeHaveOneKeyWhateverTheirPrices) {
  Plan plan = example_plan();
  const std::string key = layout_key(plan);
  plan.prediction.iteration = Seconds(123);
  plan.certificate.algorithm = "dp";
  plan.memory_limit = Bytes(1 << 30);
  EXPECT_EQ(layout_key(plan), key);
  Plan other = plan;
  other.mesh_order = MeshOrder::pp_tp_cp_dp;
  EXPECT_NE(layout_key(other), key);
  other = plan;
  other.shape.micro_batches *= 2;
  EXPECT_NE(layout_key(other), key);
}

}  // namespace
}  // namespace braid
