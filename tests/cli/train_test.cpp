// braid train: small runs in one process, the dry run, and what it says of mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/explain/run_report.h"
#include "tests/cli/program.h"
#include "tests/support/full_disk.h"

namespace braid {
namespace {

using testing::HasSubstr;

// A build without the runtime has the verb to say that it cannot train.
bool can_train() {
  const ScratchFolder folder;
  return run_braid({"train", "--help"}, folder.path()).out.find("--dry-run") != std::string::npos;
}

class TrainCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_train()) GTEST_SKIP() << "this build has no runtime";
    make_plan(folder_.path(), {"--seq", "16", "--precision", "fp32"});
  }
  Outcome train(std::vector<std::string> more) const {
    std::vector<std::string> command = {"train", "--plan", "plan.json"};
    command.insert(command.end(), more.begin(), more.end());
    return run_braid(command, folder_.path());
  }
  void edit_plan(const char* pointer, const Json& value) const {
    Json json = read_json(folder_ / "plan.json");
    json[Json::json_pointer(pointer)] = value;
    write_text(folder_ / "plan.json", json.dump());
  }

  InputFolder folder_;
};

std::vector<Json> lines_of(const std::filesystem::path& file) {
  std::istringstream text(read_text(file));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "line"));
  return lines;
}

TEST_F(TrainCommand, SaysThatAPeakIsTooLowWhereUtilisationIsAboveAll) {
  EXPECT_EQ(train({"--steps", "1"}).exit, 0);
  edit_plan("/cluster/devices/small/peak/fp32", 1e3);
  const Outcome outcome = train({"--steps", "1"});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.out, HasSubstr("Time of a step"));  // the report is there all the same
  for (const char* words : {"times as fast as peak FLOPs allow", "correct \"peak\" of 'small'",
                            "braid profile hardware"})
    EXPECT_THAT(outcome.error, HasSubstr(words));
}

TEST_F(TrainCommand, LearnsAndWritesMetrics) {
  std::string book;
  for (int i = 0; i < 500; ++i) book += "again and ";
  write_text(folder_ / "book.txt", book);
  const Outcome outcome =
      train({"--steps", "3", "--data", "text:book.txt", "--lr", "1e-3", "--metrics", "run",
             "--tensorboard", "--log-every", "1", "--out", "report.json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  for (const char* words :
       {"step 1/3", "step 2/3", "step 3/3", "in_process", "Time of a step", "Where a step goes",
        "compute", "update", "measured", "ratio", "Memory of one device", "planned"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const std::vector<Json> lines = lines_of(folder_ / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_LT(lines[2].at("loss"), lines[0].at("loss"));
  int event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run"))
    event_files += entry.path().filename().string().find("tfevents") != std::string::npos ? 1 : 0;
  EXPECT_EQ(event_files, 1);
  EXPECT_EQ(read_text(folder_ / "report.json"), read_text(folder_ / "run/report.json"));
  const RunReport report = read_report(folder_ / "report.json");
  EXPECT_EQ(report.losses.size(), 3U);
  EXPECT_EQ(report.steps.size(), 3U);
  EXPECT_EQ(plan_text(report.plan), plan_text(read_plan(folder_ / "plan.json")));
  for (const StageReport& stage : report.stages) {
    ASSERT_TRUE(stage.measured && stage.predicted);
    EXPECT_GT(stage.measured->compute, Seconds(0));
    // The terms are those of the last step, the only one that was recorded.
    EXPECT_NEAR(stage.measured->step() / report.steps.back(), 1, 0.5);
    EXPECT_NEAR(stage.predicted->step() / report.plan.prediction.iteration, 1, 1e-9);
  }
}

TEST_F(TrainCommand, WritesATraceLikeTheSimulators) {
  const Outcome outcome = train({"--steps", "3", "--trace", "run.json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("The trace is in run.json"));
  ASSERT_EQ(run_braid({"simulate", "plan.json", "--trace", "sim.json"}, folder_.path()).exit, 0);
  const auto compute_names = [&](const char* file) {
    std::set<std::string> names;
    const Json trace = read_json(folder_ / file);
    for (const Json& event : trace.at("traceEvents"))
      if (event.at("ph") == "X" && event.at("tid") == 0) names.insert(event.at("name"));
    return names;
  };
  EXPECT_TRUE(compute_names("run.json").contains("blocks.0 F0"));
  for (const std::string& name : compute_names("sim.json"))
    EXPECT_TRUE(compute_names("run.json").contains(name)) << name;
}

TEST_F(TrainCommand, TrainsOnTheBytesOfAFile) {
  write_text(folder_ / "book.txt", std::string(2000, 'a'));
  const Outcome outcome =
      train({"--steps", "2", "--data", "text:book.txt", "--lr-schedule", "cosine", "--lr-warmup",
             "1", "--precision", "bf16", "--dropout", "0.1"});
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("book.txt"));
}

TEST_F(TrainCommand, DryRunHoldsWhatThePlanSaysOfStates) {
  const Outcome outcome = train({"--dry-run", "--out", "dry.json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("Memory of one device"));
  const Json dry = read_json(folder_ / "dry.json");
  for (const Json& stage : dry.at("stages")) {
    EXPECT_GT(stage.at("held_bytes").at("activations"), 0);
    for (const char* term : {"weights", "gradients", "optimizer"})
      EXPECT_EQ(stage.at("held_bytes").at(term), stage.at("planned_bytes").at(term)) << term;
  }
}

TEST_F(TrainCommand, DryRunHoldsWhatARunHolds) {
  ASSERT_EQ(train({"--dry-run", "--out", "dry.json"}).exit, 0);
  ASSERT_EQ(train({"--steps", "1", "--out", "run.json"}).exit, 0);
  const Json dry = read_json(folder_ / "dry.json").at("stages");
  const Json run = read_json(folder_ / "run.json").at("stages");
  ASSERT_EQ(dry.size(), run.size());
  for (std::size_t i = 0; i < dry.size(); ++i)
    for (const char* key : {"held_bytes", "planned_bytes"})
      EXPECT_EQ(dry[i].at(key), run[i].at(key)) << key;
}

TEST_F(TrainCommand, DryRunOfAThousandDevicesNeedsNone) {
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  const Outcome planned =
      run_braid({"plan", "--model", (configs / "models/llama3-70b.json").string(), "--cluster",
                 (configs / "clusters/h100-128x8.json").string(), "--global-batch", "1024",
                 "--algorithm", "megatron-3d", "--out", "plan.json"},
                folder_.path());
  ASSERT_EQ(planned.exit, 0) << planned.error;
  const Outcome outcome = train({"--dry-run"});
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("1024 devices"));
}

TEST_F(TrainCommand, SaysWhatWhereAndFixOfMistakes) {
  struct Case {
    const char* fact;
    std::vector<std::string> flags;
    std::vector<const char*> expect;
  };
  write_text(folder_ / "short.txt", "ten bytes.");
  const Case cases[] = {
      {"too few ranks", {"--ranks", "3"}, {"3 ranks for a plan of 4 devices", "--ranks"}},
      {"no such backend", {"--backend", "gloo"}, {"'gloo'", "--backend", "in_process", "nccl"}},
      {"MPI without mpirun", {"--backend", "mpi"}, {"--backend mpi", "in_process"}},
      {"a GPU for threads",
       {"--backend", "in_process", "--device", "cuda"},
       {"works on CPUs", "--device cuda", "nccl"}},
      {"no such device", {"--device", "tpu"}, {"'tpu'", "--device", "cpu"}},
      {"no such data", {"--data", "books"}, {"'books' names no data", "text:FILE"}},
      {"a file that is not there", {"--data", "text:no.txt"}, {"no.txt"}},
      {"a file that is too short", {"--data", "text:short.txt"}, {"do not make one sample"}},
      {"a rate that is no number", {"--lr", "fast"}, {"'fast'", "--lr"}},
      {"a rate of zero", {"--lr", "0"}, {"trains nothing", "--lr"}},
      {"no such schedule", {"--lr-schedule", "cosin"}, {"did you mean 'cosine'", "--lr-schedule"}},
      {"a decay of no schedule", {"--lr-decay", "5"}, {"no decay", "--lr-decay"}},
      {"a warm-up past the end",
       {"--lr-schedule", "cosine", "--lr-warmup", "200"},
       {"do not fit into 100 steps"}},
      {"no such precision", {"--precision", "fp7"}, {"'fp7'", "--precision", "fp64"}},
      {"no steps", {"--steps", "0"}, {"out of range", "--steps"}},
      {"a dropout of all", {"--dropout", "1"}, {"--dropout"}},
      {"no folder for TensorBoard", {"--tensorboard"}, {"--metrics FOLDER"}},
      {"a trace in no folder", {"--trace", "no/trace.json"}, {"does not exist", "--trace"}},
      {"a trace of a lone step", {"--steps", "1", "--trace", "t.json"}, {"--trace", "--steps 2"}},
      {"a report in no folder", {"--out", "no/report.json"}, {"does not exist", "--out"}},
  };
  for (const Case& c : cases) {
    const Outcome outcome = train(c.flags);
    EXPECT_EQ(outcome.exit, 2) << c.fact << outcome.out;
    EXPECT_EQ(outcome.out, "") << c.fact;
    for (const char* part : {"braid: error: ", "\n  where: ", "\n  fix:   "})
      EXPECT_THAT(outcome.error, HasSubstr(part)) << c.fact;
    for (const char* words : c.expect) EXPECT_THAT(outcome.error, HasSubstr(words)) << c.fact;
  }
}

TEST_F(TrainCommand, RefusesModelsItCannotRunYet) {
  Json model =
      read_json(std::filesystem::path(BRAID_SOURCE_DIR) / "configs/models/swin-huge-32.json");
  model["window_size"] = 6;  // which does not tile 56 patches a side
  make_plan(folder_.path(), {});
  write_text(folder_ / "swin.json", model.dump());
  const Outcome planned = run_braid({"plan", "--model", "swin.json", "--cluster", "cluster.json",
                                     "--global-batch", "8", "--out", "plan.json"},
                                    folder_.path());
  ASSERT_EQ(planned.exit, 0) << planned.error;
  for (const char* flag : {"--dry-run", "--steps=1"}) {
    const Outcome outcome = train({flag});
    EXPECT_EQ(outcome.exit, 2);
    EXPECT_THAT(outcome.error, HasSubstr("the runtime cannot train 'swin"));
    EXPECT_THAT(outcome.error, HasSubstr("windows of 6 × 6 tokens that do not tile 56 × 56"));
  }
}

TEST_F(TrainCommand, RefusesBrokenPlans) {
  EXPECT_THAT(run_braid({"train"}, folder_.path()).error, HasSubstr("no plan is given"));
  EXPECT_THAT(run_braid({"train", "--plan", "no.json"}, folder_.path()).error,
              HasSubstr("no.json"));
  edit_plan("/stages/0/strategies/0/dp", 3);
  const Outcome outcome = train({});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.error, HasSubstr("plan.json: stages[0]"));
}

TEST_F(TrainCommand, RefusesTokensBeyondTheVocabularyAndASecondRunInOneFolder) {
  Json model = read_json(folder_ / "model.json");
  model["vocab_size"] = 128;
  write_text(folder_ / "model.json", model.dump());
  make_plan(folder_.path(), {"--seq", "16", "--precision", "fp32"});
  write_text(folder_ / "book.txt", std::string(2000, 'a'));
  const Outcome outcome = train({"--data", "text:book.txt"});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.error, HasSubstr("the data has tokens up to 255, the model knows 128"));

  EXPECT_EQ(train({"--steps", "1", "--metrics", "run"}).exit, 0);
  const Outcome again = train({"--steps", "1", "--metrics", "run"});
  EXPECT_EQ(again.exit, 2);
  EXPECT_THAT(again.error, HasSubstr("metrics of an earlier run"));
}

TEST_F(TrainCommand, EndsWhenTheLossIsNoNumber) {
  const Outcome outcome = train({"--steps", "5", "--lr", "1e30", "--metrics", "run"});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.error, HasSubstr("at step 2"));
  // Lines count steps as the screen does.
  const std::string lines = read_text(folder_ / "run/metrics.jsonl");
  EXPECT_EQ(lines.rfind("{\"step\":1,", 0), 0U) << lines;
}

TEST_F(TrainCommand, AFullDiskUnderMetricsEndsNothing) {
  Outcome outcome;
  {
    const FullDisk disk(4096);
    outcome = train({"--steps", "60", "--log-every", "60", "--metrics", "run"});
  }
  EXPECT_EQ(outcome.exit, 2);  // it trained, and could not write all it was asked for
  EXPECT_THAT(outcome.error, HasSubstr("training goes on without it"));
  EXPECT_THAT(outcome.error, HasSubstr("steps are missing in it"));
  EXPECT_THAT(outcome.error, HasSubstr("report.json"));
  EXPECT_THAT(outcome.out, HasSubstr("step 60/60"));
  EXPECT_THAT(read_text(folder_ / "run/metrics.jsonl"), testing::EndsWith("}\n"));
}

TEST_F(TrainCommand, TriesTheFolderOfMetricsFirst) {
  const Outcome outcome = train({"--metrics", "plan.json/run"});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_THAT(outcome.error, HasSubstr("the folder cannot be made or written to"));
  EXPECT_EQ(outcome.out, "");
}

TEST_F(TrainCommand, WarnsOnceOfGradientsThatAreNone) {
  Json plan = read_json(folder_ / "plan.json");
  for (Json& type : plan["model"]["types"]) type["init_std"] = 1e-20;
  write_text(folder_ / "plan.json", plan.dump());
  const Outcome outcome = train({"--steps", "5"});
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  const std::size_t at = outcome.error.find("the gradient norm was below");
  ASSERT_NE(at, std::string::npos) << outcome.out << outcome.error;
  EXPECT_EQ(outcome.error.find("the gradient norm was below", at + 1), std::string::npos);
}

TEST_F(TrainCommand, TellsWhatAFlagMayBe) {
  struct Case {
    std::vector<std::string> flags;
    const char* words;
  };
  const Case cases[] = {
      {{"--lr", "1e308"}, "1e308 is out of range"},
      {{"--lr", "1e308"}, "write a number from 0 to 1e+300"},
      {{"--lr", "fast"}, "'fast' is not a number"},
      {{"--mask-token", "3"}, "is not trained on hidden tokens"},
      {{"--steps", "5", "--lr-warmup", "6"}, "6 steps of warm-up and 0 of decay do not fit"},
      {{"--precision", "fp16"}, "'fp16' is not known here; did you mean 'bf16'?"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = train(c.flags);
    EXPECT_EQ(outcome.exit, 2) << c.words;
    EXPECT_THAT(outcome.error, HasSubstr(c.words));
  }
}

}  // namespace
}  // namespace braid
