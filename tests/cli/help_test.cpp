// What the program says of itself: help of every verb, versions, and how wide its lines are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "planner/core/json.h"
#include "planner/explain/layout.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

// The verbs as words, from the program's own list.
std::vector<Words> all_verbs(const std::filesystem::path& folder) {
  std::vector<Words> verbs;
  const auto add = [&](const auto& self, const Json& verb) -> void {
    std::istringstream name(verb["verb"].get<std::string>());
    Words words;
    for (std::string word; name >> word;) words.push_back(word);
    verbs.emplace_back(words.begin() + 1, words.end());
    if (verb.contains("verbs"))
      for (const Json& below : verb["verbs"]) self(self, below);
  };
  add(add, json_of(run_braid({"help", "--format", "json"}, folder)));
  return verbs;
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, cells(line));
  return most;
}

// COLUMNS for the programs started while it lives; 0: none.
class Columns {
 public:
  explicit Columns(int columns) {
    setenv("COLUMNS", columns > 0 ? std::to_string(columns).c_str() : "", 1);
  }
  ~Columns() { unsetenv("COLUMNS"); }
  Columns(const Columns&) = delete;
  Columns& operator=(const Columns&) = delete;
};

TEST(Help, EveryVerbHasAnExampleOfItsOwn) {
  const InputFolder folder;
  for (const Words& verb : all_verbs(folder.path())) {
    Words command = {"help"};
    command.insert(command.end(), verb.begin(), verb.end());
    const Outcome outcome = run_braid(command, folder.path());
    std::string name = "braid";
    for (const std::string& word : verb) name += " " + word;
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    EXPECT_TRUE(outcome.out.starts_with(name + ":")) << outcome.out;
    const std::size_t example = outcome.out.find("\nExample");
    ASSERT_NE(example, std::string::npos) << name;
    EXPECT_THAT(outcome.out.substr(example), AnyOf(HasSubstr(name + " "), HasSubstr(name + "\n")))
        << outcome.out;
    command.assign(verb.begin(), verb.end());
    command.emplace_back("--help");
    if (verb.size() < 2) {
      EXPECT_EQ(run_braid(command, folder.path()).out, outcome.out) << name;
    }
  }
}

TEST(Help, PromisesAllStatuses) {
  const Columns columns(160);
  const InputFolder folder;
  const std::string text = run_braid({"--help"}, folder.path()).out;
  for (const char* words :
       {"0 done", "2 a mistake", "3 no plan", "130, 138 or 143 interrupted", "1 a bug"})
    EXPECT_THAT(text, HasSubstr(words));
}

TEST(Help, OfAnUnknownVerbSuggestsTheNearest) {
  const InputFolder folder;
  const Outcome outcome = run_braid({"help", "trian"}, folder.path());
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.error, HasSubstr("did you mean 'train'?"));
}

TEST(Version, IsToldWhereverItIsAskedFor) {
  const InputFolder folder;
  const std::string text = run_braid({"--version"}, folder.path()).out;
  EXPECT_THAT(text, HasSubstr(", commit "));
  for (const char* words : {"libtorch: ", "CUDA: ", "NCCL: ", "MPI: "})
    EXPECT_THAT(text, HasSubstr(words));
  for (const Words& words :
       {Words{"-V"}, Words{"version"}, Words{"plan", "--version"}, Words{"bench", "step", "-V"}})
    EXPECT_EQ(run_braid(words, folder.path()).out, text) << words.front();
  const Json json = json_of(run_braid({"version", "--format", "json"}, folder.path()));
  EXPECT_THAT(text, HasSubstr(json["commit"].get<std::string>()));
}

class Widths : public testing::TestWithParam<int> {};

TEST_P(Widths, NoLineIsWiderThanTheTerminal) {
  const InputFolder folder;
  make_plan(folder.path());
  std::vector<Words> commands = {
      plan_command(),
      plan_command({"--tree", "--algorithm", "pp"}),
      plan_command({"--memory", "1MiB"}),
      {"check", "plan.json", "--model", "model.json"},
      {"explain", "plan.json"},
      {"explain", "plan.json", "--memory", "1MiB"},
      {"simulate", "plan.json", "--contention", "--straggler", "0:1.5", "--allocator"},
      {"primepar", "--model", "model.json", "--cluster", "cluster.json", "--pareto"},
      {"train", "plan.json", "--dry-run"},
      {"version"},
  };
  for (const Words& verb : all_verbs(folder.path())) {
    commands.push_back({"help"});
    commands.back().insert(commands.back().end(), verb.begin(), verb.end());
  }
  const Columns columns(GetParam());
  const auto limit = static_cast<std::size_t>(GetParam() == 0 ? 80 : GetParam());
  for (const Words& command : commands) {
    const Outcome outcome = run_braid(command, folder.path());
    EXPECT_LE(widest(outcome.out), limit) << outcome.out << outcome.error;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Widths, testing::Values(0, 60));

}  // namespace
}  // namespace braid
