// The plan file: that it comes back byte for byte, and that its schema describes it.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/plan/prediction_fields.h"
#include "tests/plan/sample_plan.h"

namespace braid {
namespace {

Plan reread(const std::string& text) {
  return plan_from_json(parse_json(text, "plan.json"), "plan.json");
}

struct ShapeCase {
  const char* fact;
  PipelineShape shape;
};

constexpr ShapeCase kShapes[] = {
    {"one_stage", {ScheduleKind::one_f_one_b, 1, 1, 1}},
    {"gpipe", {ScheduleKind::gpipe, 4, 3, 1}},
    {"one_f_one_b", {ScheduleKind::one_f_one_b, 2, 4, 1}},
    {"interleaved_two_chunks", {ScheduleKind::interleaved, 2, 4, 2}},
    {"interleaved_four_chunks", {ScheduleKind::interleaved, 2, 2, 4}},
    {"zero_bubble_on_single_devices", {ScheduleKind::zero_bubble, 8, 16, 1}},
};

class EverySchedule : public testing::TestWithParam<ShapeCase> {};

TEST_P(EverySchedule, RoundTripsByteForByte) {
  const std::string text = plan_text(sample_plan(GetParam().shape));
  EXPECT_EQ(plan_text(reread(text)), text);
  EXPECT_TRUE(text.ends_with("}\n"));
}

TEST_P(EverySchedule, ComesBackEqual) {
  const Plan plan = sample_plan(GetParam().shape);
  const Plan again = reread(plan_text(plan));
  EXPECT_EQ(again.shape, plan.shape);
  ASSERT_EQ(again.stages.size(), plan.stages.size());
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    EXPECT_EQ(again.stages[i].chunks, plan.stages[i].chunks);
    EXPECT_EQ(again.stages[i].strategies, plan.stages[i].strategies);
    const StagePrediction& found = again.prediction.stages[i];
    const StagePrediction& written = plan.prediction.stages[i];
    for (const auto& field : kStageTimeFields)
      EXPECT_EQ(found.times.*field.member, written.times.*field.member) << field.name;
    for (const auto& field : kTimeTermFields)
      EXPECT_EQ(found.terms.*field.member, written.terms.*field.member) << field.name;
    for (const auto& field : kMemoryFields)
      EXPECT_EQ(found.memory.*field.member, written.memory.*field.member) << field.name;
    EXPECT_EQ(found.in_flight, written.in_flight);
    EXPECT_EQ(found.budget, written.budget);
  }
}

INSTANTIATE_TEST_SUITE_P(PlanJson, EverySchedule, testing::ValuesIn(kShapes),
                         [](const auto& test) { return std::string(test.param.fact); });

TEST(PlanJson, KeepsEveryChoice) {
  Plan plan = two_stage_plan();
  plan.cost = CostKind::measured;
  plan.profile = ProfileReference{"runs/größe 1.json", "9f86d081"};
  plan.precision = Precision::fp8;
  plan.gradient_precision = Precision::bf16;
  plan.memory_limit = Bytes(std::int64_t{16} << 30);
  plan.mesh_order = MeshOrder::dp_cp_tp_pp;
  plan.stages[0].strategies[1] = {.tp = 2,
                                  .tp_kind = TensorKind::ulysses,
                                  .cp = 2,
                                  .dp = 1,
                                  .zero = Zero::parameters,
                                  .ep = 1,
                                  .recompute = Recompute::selective};
  const std::string text = plan_text(plan);
  const Plan again = reread(text);
  EXPECT_EQ(plan_text(again), text);
  EXPECT_EQ(again.cost, CostKind::measured);
  const ProfileReference profile = again.profile.value_or(ProfileReference{});
  EXPECT_EQ(profile.file, "runs/größe 1.json");
  EXPECT_EQ(profile.fingerprint, "9f86d081");
  EXPECT_EQ(again.precision, Precision::fp8);
  EXPECT_EQ(again.gradient_precision, Precision::bf16);
  EXPECT_EQ(again.memory_limit, plan.memory_limit);
  EXPECT_EQ(again.mesh_order, MeshOrder::dp_cp_tp_pp);
  EXPECT_EQ(again.stages[0].strategies, plan.stages[0].strategies);
}

TEST(PlanJson, WritesASquareWhereThereIsOne) {
  Plan plan = two_stage_plan();
  plan.stages[0].strategies[1] = {.tp = 4,
                                  .tp_kind = TensorKind::spatial_temporal,
                                  .square = 2,
                                  .variant = SquareVariant::paper};
  plan.prediction.stages[0].terms.hidden_tensor = 0.25;
  Json json = to_json(plan);
  Json& square = json["stages"][0]["strategies"][1];
  EXPECT_EQ(square.dump(),
            R"({"layers":1,"tp":4,"tp_kind":"spatial_temporal","square":2,"variant":"paper",)"
            R"("cp":1,"dp":1,"zero":0,"ep":1,"recompute":"none"})");
  const Plan again = reread(plan_text(plan));
  EXPECT_EQ(plan_text(again), plan_text(plan));
  EXPECT_EQ(again.stages[0].strategies, plan.stages[0].strategies);
  EXPECT_EQ(again.prediction.stages[0].terms.hidden_tensor, 0.25);

  square.erase("variant");
  EXPECT_EQ(plan_from_json(json, "plan.json").stages[0].strategies[1].variant,
            SquareVariant::plus_minus);
  square.erase("square");
  EXPECT_THROW(plan_from_json(json, "plan.json"), Error) << "a square has a side";
  square["tp_kind"] = "megatron";
  EXPECT_NO_THROW(plan_from_json(json, "plan.json"));
  square["square"] = 2;
  EXPECT_THROW(plan_from_json(json, "plan.json"), Error) << "megatron has none";
}

TEST(PlanJson, MergesRunsOfEqualStrategies) {
  const std::string canonical = plan_text(two_stage_plan());
  Json json = parse_json(canonical, "plan.json");
  Json& runs = json["stages"][0]["strategies"];
  ASSERT_EQ(runs.size(), 2U);
  ASSERT_EQ(runs[1]["layers"], 4);
  Json rest = runs[1];
  runs[1]["layers"] = 1;
  rest["layers"] = 3;
  runs.push_back(rest);
  EXPECT_EQ(plan_text(plan_from_json(json, "plan.json")), canonical);
}

TEST(PlanJson, WritesEveryFieldOfAStrategy) {
  const Json json = to_json(two_stage_plan());
  EXPECT_EQ(json["stages"][0]["strategies"][0].dump(),
            R"({"layers":1,"tp":1,"tp_kind":"megatron","cp":1,"dp":4,"zero":0,"ep":1,)"
            R"("recompute":"none"})");
  EXPECT_EQ(json["stages"][1]["chunks"].dump(), "[[5,10]]");
}

// All members of these have eight bytes, so a term that the tables forgot shows in the size.
TEST(PlanJson, KnowsEveryTermOfAPrediction) {
  EXPECT_EQ(kStageTimeFields.size() * 8, sizeof(StageTimes));
  EXPECT_EQ((kTimeTermFields.size() + kOptionalTermFields.size()) * 8, sizeof(LayerTime));
  EXPECT_EQ((kMemoryFields.size() + kOptionalMemoryFields.size()) * 8, sizeof(LayerMemory));
  // redistribute, in_flight, messages, slack, overhead, peak, budget
  constexpr std::size_t kOwn = 7;
  EXPECT_EQ(sizeof(StageTimes) + sizeof(LayerTime) + sizeof(LayerMemory) + kOwn * 8,
            sizeof(StagePrediction));
}

TEST(PlanJson, ReadsAFile) {
  const auto file = std::filesystem::path(testing::TempDir()) / "braid_plan_json_test.json";
  const std::string text = plan_text(two_stage_plan());
  write_text(file, text);
  EXPECT_EQ(plan_text(read_plan(file)), text);
  std::filesystem::remove(file);
}

TEST(PlanJson, RefusesEveryTruncation) {
  const std::string text = plan_text(two_stage_plan());
  for (std::size_t length = 0; length + 2 < text.size(); length += 41)
    EXPECT_THROW(reread(text.substr(0, length)), Error) << length;
}

TEST(PlanJson, RefusesNamesThatAreNotText) {
  Plan plan = two_stage_plan();
  plan.profile = ProfileReference{"\xff.json", ""};
  EXPECT_THROW(plan_text(plan), Error);
}

// What is left out has its usual value; what remains is the written plan.
TEST(PlanJson, ReadsAPlanWrittenByHand) {
  Plan plan = read_plan(std::filesystem::path(BRAID_SOURCE_DIR) / "configs/examples/by-hand.json");
  EXPECT_EQ(plan.model.name, "llama2-7b");
  EXPECT_EQ(plan.shape, (PipelineShape{ScheduleKind::one_f_one_b, 2, 16, 1}));
  EXPECT_EQ(plan.stages[1].chunks, (std::vector<LayerRange>{{17, 34}}));
  EXPECT_EQ(
      plan.stages[0].strategies[1],
      (Strategy{.tp = 2, .dp = 2, .zero = Zero::optimizer, .recompute = Recompute::selective}));
  EXPECT_TRUE(plan.prediction.stages.empty());
  EXPECT_EQ(plan_text(reread(plan_text(plan))), plan_text(plan));
}

TEST(PlanJson, TakesWhatItWritesWithoutAnyKeyThatHasAUsualValue) {
  Plan plan = two_stage_plan();
  plan.prediction = {}, plan.certificate = {};
  const Json whole = to_json(plan);
  for (const char* key : {"prediction", "certificate"}) EXPECT_FALSE(whole.contains(key)) << key;
  for (const char* key :
       {"cost", "precision", "gradient_precision", "memory_limit", "mesh_order"}) {
    Json part = whole;
    part.erase(key);
    EXPECT_EQ(plan_text(reread(part.dump())), plan_text(plan)) << key;
  }
}

TEST(PlanJson, RefusesACertificateWithoutPrediction) {
  Json json = to_json(two_stage_plan());
  json.erase("prediction");
  EXPECT_THROW(reread(json.dump()), Error);
}

TEST(PlanJsonDeathTest, NeverWritesInfinity) {
  Plan plan = two_stage_plan();
  plan.certificate.lower_bound = kForever;
  EXPECT_DEATH(plan_text(plan), "only finite numbers");
}

// Every object of the file has exactly the schema's properties; optional ones may be absent.
void expect_described(const Json& value, const Json& schema, const Json& root,
                      const std::string& path) {
  if (schema.contains("$ref")) {
    const auto target = schema["$ref"].get<std::string>();
    if (!target.starts_with("#")) return;  // another file's, checked with its own reader
    return expect_described(value, root.at(Json::json_pointer(target.substr(1))), root, path);
  }
  if (schema.contains("anyOf")) return expect_described(value, schema["anyOf"][0], root, path);
  if (value.is_array())
    for (const Json& item : value) expect_described(item, schema["items"], root, path + "[]");
  if (!value.is_object()) return;
  for (const auto& [key, child] : value.items()) {
    ASSERT_TRUE(schema["properties"].contains(key)) << path << "." << key;
    expect_described(child, schema["properties"][key], root, fmt::format("{}.{}", path, key));
  }
  for (const Json& key : schema["required"]) EXPECT_TRUE(value.contains(key)) << path << "." << key;
}

TEST(PlanJson, FollowsItsSchema) {
  const Json schema =
      read_json(std::filesystem::path(BRAID_SOURCE_DIR) / "schemas" / "plan.schema.json");
  Plan plan = two_stage_plan();
  plan.profile = ProfileReference{"p.json", "0"};
  const Json json = to_json(plan);
  expect_described(json, schema, schema, "plan");
  for (const auto& [key, unused] : schema["properties"].items())
    EXPECT_TRUE(json.contains(key)) << key;
}

}  // namespace
}  // namespace braid
