// The file braid.train_report: that it comes back as it was, and what is said of broken ones.

#include "planner/explain/run_report.h"
#include "planner/core/file.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "tests/plan/sample_plan.h"
#include "tests/support/files.h"

namespace braid {
namespace {

StepTerms odd_terms(double first) {
  StepTerms terms;
  for (const PlainTerm& term : kPlainTerms) terms.*term.member = Seconds(first /= 3);
  for (const CommTerm& term : kCommTerms) {
    const Seconds exposed(first /= 3);
    terms.*term.member = {exposed, Seconds(first /= 7)};
  }
  return terms;
}

RunReport sample_report() {
  RunReport report{.plan = two_stage_plan(),
                   .step = Seconds(1.0 / 3),
                   .steps = {Seconds(2), Seconds(1.0 / 3)},
                   .mfu = 0.1,
                   .losses = {4.2, 4.1},
                   .stages = {},
                   .stopped_by = "SIGTERM"};
  for (int stage = 0; stage < 2; ++stage)
    report.stages.push_back({.held = {Bytes(1), Bytes(2), Bytes(3), Bytes(4), std::nullopt},
                             .measured = odd_terms(1),
                             .predicted = odd_terms(2)});
  report.stages.back().held.allocated = Bytes(std::int64_t{1} << 40);
  return report;
}

TEST(RunReport, ComesBackFromItsFile) {
  const ScratchFolder folder;
  const RunReport report = sample_report();
  write_text(folder / "report.json", to_json(report).dump(2));
  const RunReport read = read_report(folder / "report.json");
  EXPECT_EQ(plan_text(read.plan), plan_text(report.plan));
  EXPECT_EQ(read.step, report.step);
  EXPECT_EQ(read.steps, report.steps);
  EXPECT_EQ(read.mfu, report.mfu);
  EXPECT_EQ(read.losses, report.losses);
  EXPECT_EQ(read.stopped_by, report.stopped_by);
  ASSERT_EQ(read.stages.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.stages[i].held, report.stages[i].held);
    EXPECT_EQ(read.stages[i].measured, report.stages[i].measured);
    EXPECT_EQ(read.stages[i].predicted, report.stages[i].predicted);
  }
}

TEST(RunReport, MayLackWhatNobodyKnows) {
  RunReport report = sample_report();
  report.mfu.reset();
  report.plan.prediction = {};
  for (StageReport& stage : report.stages) stage.measured = stage.predicted = std::nullopt;
  const RunReport read = report_from_json(to_json(report), "report");
  EXPECT_EQ(read.mfu, std::nullopt);
  EXPECT_EQ(read.stages.front().measured, std::nullopt);
  EXPECT_EQ(read.stages.front().predicted, std::nullopt);
}

TEST(RunReport, SaysWhatIsWrongWithAFile) {
  struct Case {
    const char* fact;
    const char* pointer;
    Json value;
    const char* expect;
  };
  const Case cases[] = {
      {"another format", "/format", "braid.plan", "not a 'braid.train_report'"},
      {"another version", "/version", 1, "version 1"},
      {"an unknown key", "/step_second", 1, "step_seconds"},
      {"a plan that is none", "/plan/stages/0/strategies/0/dp", 3, "stages[0]"},
      {"a term that is text", "/stages/1/measured/tensor/exposed", "fast", "stages[1].measured"},
      {"an unknown term", "/stages/0/measured/tensors", 1, "tensor"},
      {"stages out of order", "/stages/0/stage", 1, "stage 1 at place 0"},
      {"a stage too few", "/stages", Json::array(), "0 stages of a plan of 2"},
  };
  for (const Case& c : cases) {
    Json json = to_json(sample_report());
    json[Json::json_pointer(c.pointer)] = c.value;
    const Mistake mistake = mistake_of(c.fact, [&] { report_from_json(json, "report.json"); });
    EXPECT_TRUE(holds(mistake.what + mistake.where + mistake.fix, c.expect)) << c.fact;
    EXPECT_TRUE(holds(mistake.where, "report.json")) << c.fact;
  }
}

TEST(RunReport, RefusesAFileThatWasCutShort) {
  const ScratchFolder folder;
  const std::string text = to_json(sample_report()).dump(1);
  for (const std::size_t length : {std::size_t{0}, text.size() / 2, text.size() - 1}) {
    write_bytes(folder / "cut.json", std::string_view(text).substr(0, length));
    mistake_of("a cut file", [&] { read_report(folder / "cut.json"); });
  }
}

void expect_described(const Json& value, const Json& schema, const Json& root,
                      const std::string& path) {
  if (schema.contains("$ref")) {
    const auto target = schema["$ref"].get<std::string>();
    if (!target.starts_with("#")) return;  // another file's, checked with its own reader
    return expect_described(value, root.at(Json::json_pointer(target.substr(1))), root, path);
  }
  if (value.is_array())
    for (const Json& item : value) expect_described(item, schema["items"], root, path + "[]");
  if (!value.is_object()) return;
  for (const auto& [key, child] : value.items()) {
    ASSERT_TRUE(schema["properties"].contains(key)) << path << "." << key;
    expect_described(child, schema["properties"][key], root, fmt::format("{}.{}", path, key));
  }
  for (const Json& key : schema["required"]) EXPECT_TRUE(value.contains(key)) << path << "." << key;
}

TEST(RunReport, FollowsItsSchema) {
  const Json schema =
      read_json(std::filesystem::path(BRAID_SOURCE_DIR) / "schemas" / "train_report.schema.json");
  const Json json = to_json(sample_report());
  expect_described(json, schema, schema, "report");
  for (const auto& [key, unused] : schema["properties"].items())
    EXPECT_TRUE(json.contains(key)) << key;
}

}  // namespace
}  // namespace braid
