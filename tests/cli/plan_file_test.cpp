// What other verbs do with a plan that 'braid plan' wrote: explain, check, simulate, and profiles
// that 'braid import' makes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/plan/plan.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;

Json explained(const ScratchFolder& folder, std::vector<std::string> flags = {}) {
  std::vector<std::string> command = {"explain", "plan.json", "--format", "json"};
  command.insert(command.end(), flags.begin(), flags.end());
  return json_of(run_braid(command, folder.path()));
}

double seconds_of(const Json& answer) { return answer.at("predicted").at("iteration_seconds"); }

TEST(ExplainCommand, PrintsThePlanAgain) {
  const InputFolder folder;
  make_plan(folder.path());
  EXPECT_EQ(explained(folder).at("plan"), read_json(folder / "plan.json"));
  const Outcome text = run_braid({"explain", "plan.json"}, folder.path());
  EXPECT_EQ(text.exit, 0);
  EXPECT_EQ(text.error, "");
  EXPECT_THAT(text.out, HasSubstr("Where the time goes"));
  EXPECT_THAT(text.out, HasSubstr("optimality"));
}

TEST(ExplainCommand, PricesAnotherQuestionAnew) {
  const InputFolder folder;
  make_plan(folder.path());
  const double now = seconds_of(explained(folder));
  // Twice the samples in micro-batches of the same size: more work, the same reduction and update.
  const double twice_the_batch = seconds_of(explained(folder, {"--global-batch", "16"}));
  EXPECT_GT(twice_the_batch, 1.5 * now);
  EXPECT_LT(twice_the_batch, 2.0 * now);
  EXPECT_LT(seconds_of(explained(folder, {"--seq", "256"})), now);
  EXPECT_GT(seconds_of(explained(folder, {"--devices", "2"})), now);

  const Outcome text = run_braid({"explain", "plan.json", "--seq", "256"}, folder.path());
  EXPECT_THAT(text.out, HasSubstr("sequence 256"));
  EXPECT_THAT(text.error, HasSubstr("priced anew"));
  EXPECT_EQ(text.out.find("optimality"), std::string::npos) << "bounds of another task";
}

TEST(ExplainCommand, DoesNotShowFiguresThatWereEdited) {
  const InputFolder folder;
  make_plan(folder.path());
  Json plan = read_json(folder / "plan.json");
  const double right = plan["prediction"]["iteration"];
  plan["prediction"]["iteration"] = 2 * right;
  write_text(folder / "plan.json", plan.dump());
  const Outcome outcome = run_braid({"explain", "plan.json", "--format", "json"}, folder.path());
  EXPECT_DOUBLE_EQ(seconds_of(json_of(outcome)), right);
  EXPECT_THAT(outcome.error, HasSubstr("priced anew"));
}

TEST(ExplainCommand, FollowsAProfileThatMovedWithItsPlan) {
  const InputFolder folder;
  make_plan(folder.path(), {"--profile", "profile.json"});
  const double now = seconds_of(explained(folder));
  std::filesystem::create_directory(folder / "moved");
  for (const char* file : {"plan.json", "profile.json"})
    std::filesystem::rename(folder / file, folder.path() / "moved" / file);
  const Outcome moved =
      run_braid({"explain", "moved/plan.json", "--format", "json"}, folder.path());
  EXPECT_DOUBLE_EQ(seconds_of(json_of(moved)), now);

  std::filesystem::remove(folder.path() / "moved/profile.json");
  const Outcome alone = run_braid({"explain", "moved/plan.json"}, folder.path());
  EXPECT_EQ(alone.exit, 0);
  EXPECT_THAT(alone.error, HasSubstr("could not be checked"));
  EXPECT_EQ(run_braid({"explain", "moved/plan.json", "--seq", "256"}, folder.path()).exit, 2);
}

TEST(CheckCommand, SaysThatAFreshPlanFitsAndIsCurrent) {
  const InputFolder folder;
  make_plan(folder.path(), {"--seq", "256", "--devices", "2"});
  const Outcome outcome = run_braid(
      {"check", "plan.json", "--model", "model.json", "--cluster", "cluster.json"}, folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"legal", "same", "fits", "current"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const Json json = json_of(run_braid({"check", "plan.json", "--format", "json"}, folder.path()));
  EXPECT_EQ(json.at("status"), "ok");
  EXPECT_EQ(json.at("current"), true);
}

TEST(CheckCommand, NoticesAStalePrediction) {
  const InputFolder folder;
  make_plan(folder.path());
  const Outcome outcome =
      run_braid({"check", "plan.json", "--profile", "profile.json"}, folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("stale"));
}

TEST(CheckCommand, NamesWhatIsStaleWhereTheIterationIsNot) {
  const InputFolder folder;
  make_plan(folder.path());
  const Json sound = read_json(folder / "plan.json");
  struct Case {
    const char* place;
    Json value;
    const char* words;
  };
  const Case cases[] = {
      {"/prediction/stages/0/times/forward", 0, "stage 0's forward 0 s in the file"},
      {"/prediction/stages/0/in_flight", 7, "stage 0's micro-batches in flight 7 in the file"},
      {"/prediction/stages/0/memory/weights", 0, "stage 0's weights 0 B in the file"},
      {"/memory_limit", 1 << 30, "stage 0's budget 8.0 GiB in the file, 1.0 GiB priced anew"},
      {"/prediction/samples_per_second", 7, "samples a second 7 in the file"},
      {"/prediction/stages/0/terms/update", 7, "stage 0's term of update 7.000 s in the file"},
      {"/prediction/stages/0/terms/hidden_tensor", 7, "term of hidden tensor 7.000 s in the file"},
      {"/prediction/stages/0/redistribute", 7, "stage 0's redistribution 7.000 s in the file"},
      {"/prediction/stages/0/memory/constants", 7 << 20, "stage 0's constants 7.0 MiB in the"},
      {"/prediction/stages/0/messages", 7 << 20, "stage 0's messages 7.0 MiB in the file"},
      {"/prediction/stages/0/slack", 7 << 20, "stage 0's slack 7.0 MiB in the file"},
      {"/prediction/stages/0/overhead", 7 << 20, "stage 0's overhead 7.0 MiB in the file"},
      {"/certificate/physics_bound", 1e-9, "certificate's physics bound 0.0 us in the file"},
  };
  for (const Case& c : cases) {
    Json edited = sound;
    edited[Json::json_pointer(c.place)] = c.value;
    write_text(folder / "plan.json", edited.dump());
    const Outcome outcome = run_braid({"check", "plan.json"}, folder.path());
    EXPECT_THAT(outcome.out, HasSubstr("stale")) << c.place;
    EXPECT_THAT(outcome.out, HasSubstr(c.words)) << c.place;
  }
}

TEST(CheckCommand, NamesEveryFigureThatIsStale) {
  const InputFolder folder;
  make_plan(folder.path());
  Json plan = read_json(folder / "plan.json");
  plan["prediction"]["samples_per_second"] = 7;
  plan["prediction"]["stages"][0]["slack"] = 7;
  plan["prediction"]["stages"][0]["times"]["update"] = 7;
  write_text(folder / "plan.json", plan.dump());
  const Json answer = json_of(run_braid({"check", "plan.json", "--format", "json"}, folder.path()));
  EXPECT_EQ(answer.at("current"), false);
  std::vector<std::string> figures;
  for (const Json& figure : answer.at("stale")) figures.push_back(figure.at("figure"));
  EXPECT_EQ(figures, (std::vector<std::string>{"stage 0's update", "stage 0's slack",
                                               "samples a second", "certificate's lower bound"}));
  EXPECT_EQ(answer.at("stale").at(1).at("stored"), "7 B");
  const Outcome text = run_braid({"check", "plan.json"}, folder.path());
  for (const std::string& figure : figures) EXPECT_THAT(text.out, HasSubstr(figure));
  EXPECT_THAT(run_braid({"explain", "plan.json"}, folder.path()).error,
              HasSubstr("priced anew (and 3 more figures)"));
}

// Stage times of nothing once made its timeline divide by zero, and grow without end.
TEST(SimulateCommand, PlaysTodaysPricesAndNotThoseOfTheFile) {
  const InputFolder folder;
  make_plan(folder.path(), {"--algorithm", "pp"});
  const auto simulated = [&] {
    return run_braid({"simulate", "plan.json", "--format", "json"}, folder.path());
  };
  const Outcome sound = simulated();
  EXPECT_EQ(sound.error, "");
  Json plan = read_json(folder / "plan.json");
  for (Json& stage : plan["prediction"]["stages"])
    for (auto& [name, time] : stage["times"].items()) time = 0;
  plan["prediction"]["iteration"] = 0.175;
  write_text(folder / "plan.json", plan.dump());
  const Outcome edited = simulated();
  EXPECT_EQ(edited.exit, 0);
  // The file's bound speaks of other prices, so it goes.
  const auto without_bound = [](const Outcome& outcome) {
    Json answer = json_of(outcome);
    for (const char* key : {"lower_bound_seconds", "gap"}) answer["predicted"].erase(key);
    return answer;
  };
  EXPECT_EQ(without_bound(edited), without_bound(sound));
  EXPECT_THAT(edited.error,
              HasSubstr("the plan's stored prediction is stale: 175.00 ms in the file, "));
  EXPECT_THAT(edited.error, HasSubstr(" priced anew (and "));
  const Outcome profiled =
      run_braid({"simulate", "plan.json", "--profile", "profile.json"}, folder.path());
  EXPECT_EQ(profiled.exit, 0) << profiled.error;
  EXPECT_THAT(profiled.out, HasSubstr("Timeline"));
}

TEST(SimulateCommand, PlaysTheScheduleAndWritesATrace) {
  const InputFolder folder;
  make_plan(folder.path(), {"--algorithm", "pp"});
  const Outcome outcome =
      run_braid({"simulate", "plan.json", "--trace", "trace.json"}, folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"Timeline", "stage 3", "F0", "bubble", "busy", "trace.json"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  EXPECT_FALSE(read_json(folder / "trace.json").at("traceEvents").empty());

  const Json json =
      json_of(run_braid({"simulate", "plan.json", "--format", "json"}, folder.path()));
  const double iteration = read_plan(folder / "plan.json").prediction.iteration.value();
  EXPECT_DOUBLE_EQ(json.at("iteration_seconds"), iteration);
  EXPECT_EQ(json.at("stages").size(), 4U);
}

TEST(SimulateCommand, PlaysStreamsLinksAndStragglersWhenAsked) {
  const InputFolder folder;
  make_plan(folder.path(), {"--algorithm", "pp"});
  const Outcome outcome = run_braid({"simulate", "plan.json", "--contention", "--straggler",
                                     "0:1.5", "--memory", "--trace", "trace.json"},
                                    folder.path());
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"from stage times alone", "Waiting", "bubble", "Memory", "reserved"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  EXPECT_FALSE(read_json(folder / "trace.json").at("traceEvents").empty());

  const auto iteration = [&](std::vector<std::string> more) -> double {
    std::vector<std::string> arguments = {"simulate", "plan.json", "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json_of(run_braid(arguments, folder.path())).at("iteration_seconds");
  };
  EXPECT_DOUBLE_EQ(iteration({"--straggler", "0:1"}), iteration({}));
  EXPECT_GT(iteration({"--straggler", "0:1.5"}), iteration({}));
  EXPECT_GT(iteration({"--straggler", "100%:1.5"}), iteration({"--straggler", "0:1.5"}));
}

TEST(ImportCommand, MakesAProfileThatPlansByItself) {
  const InputFolder folder;
  const Outcome imported = run_braid(
      {"import", "galvatron", "--hardware", "hardware", "--model-profile", "profiled", "--layers",
       "64:32:4", "--nodes", "1", "--gpus-per-node", "2", "--out", "imported.json"},
      folder.path());
  EXPECT_EQ(imported.exit, 0) << imported.error;
  EXPECT_THAT(imported.out, HasSubstr("imported.json"));
  const Json answer = json_of(run_braid(
      {"import", "galvatron", "--hardware", "hardware", "--model-profile", "profiled", "--layers",
       "64:32:4", "--gpus-per-node", "2", "--out", "imported.json", "--format", "json"},
      folder.path()));
  EXPECT_EQ(answer.at("file"), "imported.json");
  EXPECT_EQ(answer.at("layer_types"), read_json(folder / "imported.json").at("layers").size());
  for (const char* cost : {"galvatron", "measured"}) {
    const Json plan = json_of(run_braid({"plan", "--profile", "imported.json", "--cost", cost,
                                         "--global-batch", "8", "--format", "json"},
                                        folder.path()));
    EXPECT_EQ(plan.at("plan").at("cost"), cost);
  }
}

}  // namespace
}  // namespace braid
