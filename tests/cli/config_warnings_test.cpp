// What a verb says of keys in a Hugging Face config that its model does not follow.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

int times(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(ConfigWarnings, StandOnceOnStandardError) {
  const InputFolder folder;
  Json model = read_json(folder / "model.json");
  ASSERT_EQ(run_braid(plan_command(), folder.path()).error.find("ignored"), std::string::npos);
  model["layer_norm_kind"] = "other";
  model["attention_dropout"] = 0.5;
  write_bytes(folder / "model.json", model.dump());
  const Outcome outcome = run_braid(plan_command(), folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_EQ(times(outcome.error, "are ignored: layer_norm_kind"), 1) << outcome.error;
  EXPECT_EQ(times(outcome.error, "train --dropout: attention_dropout 0.5"), 1) << outcome.error;
  EXPECT_THAT(outcome.out, Not(HasSubstr("ignored")));
}

// Status 2 and the way out: a dense model must not take its place.
TEST(ConfigWarnings, DoNotReplaceTheRefusalOfExperts) {
  const InputFolder folder;
  Json model = read_json(folder / "model.json");
  model["num_experts"] = 128;
  write_bytes(folder / "model.json", model.dump());
  const Outcome outcome = run_braid(plan_command(), folder.path());
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.error, HasSubstr("asks for experts"));
  EXPECT_THAT(outcome.error, HasSubstr("docs/add-a-model.md"));
}

TEST(ConfigWarnings, AreThoseOfCheckAndOfPlansThatNameTheirModel) {
  const InputFolder folder;
  make_plan(folder.path());
  Json plan = read_json(folder / "plan.json");
  plan["model"] = "model.json";
  write_bytes(folder / "named.json", plan.dump());
  Json model = read_json(folder / "model.json");
  model["layer_norm_kind"] = "other";
  write_bytes(folder / "model.json", model.dump());
  const std::vector<std::vector<std::string>> commands = {
      {"check", "plan.json", "--model", "model.json"},
      {"check", "named.json"},
      {"explain", "named.json"},
      {"price", "named.json"},
      {"simulate", "named.json"}};
  for (const std::vector<std::string>& command : commands) {
    const Outcome outcome = run_braid(command, folder.path());
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    EXPECT_EQ(times(outcome.error, "are ignored: layer_norm_kind"), 1)
        << command.front() << outcome.error;
  }
}

}  // namespace
}  // namespace braid
