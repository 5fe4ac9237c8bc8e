#include "runtime/train/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "planner/core/json.h"
#include "tests/support/files.h"
#include "tests/support/full_disk.h"

namespace braid::train {
namespace {

using namespace braid::literals;

StepMetrics metrics_at(std::int64_t step) {
  return {.step = step,
          .loss = 2.5,
          .gradient_norm = 0.5,
          .learning_rate = 0.25,
          .tokens = 4096,
          .seconds = Seconds(0.5)};
}

// The steps of a metrics.jsonl in its order, counted from 0 as programs do; the file has them from
// 1 on, as people see them.
std::vector<std::int64_t> steps_in(const std::filesystem::path& file) {
  std::vector<std::int64_t> steps;
  std::istringstream lines(read_bytes(file));
  for (std::string line; std::getline(lines, line);)
    steps.push_back(parse_json(line, "line")["step"].get<std::int64_t>() - 1);
  return steps;
}

void write_steps(const std::filesystem::path& folder, std::int64_t first, std::int64_t end) {
  MetricsWriter writer({.folder = folder, .resumes = first > 0, .first_step = first});
  for (std::int64_t step = first; step < end; ++step) writer.write(metrics_at(step));
}

TEST(Metrics, ALineByHand) {
  StepMetrics metrics = metrics_at(7);
  EXPECT_EQ(json_line(metrics),
            R"({"step":8,"loss":2.5,"gradient_norm":0.5,"learning_rate":0.25,"tokens":4096,)"
            R"("seconds":0.5,"tokens_per_second":8192.0})");
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.gradient_norm = std::numeric_limits<double>::infinity();
  metrics.launch = Seconds(0.25);
  metrics.mfu = 0.5;
  metrics.allocated = 1_KiB;
  metrics.predicted = 2_KiB;
  metrics.predicted_seconds = Seconds(0.75);
  EXPECT_EQ(json_line(metrics),
            R"({"step":8,"loss":null,"gradient_norm":null,"learning_rate":0.25,"tokens":4096,)"
            R"("seconds":0.5,"tokens_per_second":8192.0,"launch_seconds":0.25,"mfu":0.5,)"
            R"("allocated_bytes":1024,"predicted_bytes":2048,"predicted_seconds":0.75})");
}

TEST(Metrics, UtilisationByHand) {
  // 6e12 FLOPs in 2 s on 4 devices of 1.5e12 FLOP/s: 6 / (2 · 4 · 1.5).
  const FlopsPerSecond peak(1.5e12);
  EXPECT_DOUBLE_EQ(model_flops_utilisation(Flops(6e12), Seconds(2), 4, peak).value(), 0.5);
  EXPECT_EQ(model_flops_utilisation(Flops(6e12), Seconds(2), 4, std::nullopt), std::nullopt);
  EXPECT_EQ(model_flops_utilisation(Flops(6e12), Seconds(2), 4, FlopsPerSecond(0)), std::nullopt);
  EXPECT_EQ(model_flops_utilisation(Flops(6e12), Seconds(0), 4, peak), std::nullopt);
}

TEST(Metrics, EachLineIsInTheFileAtOnce) {
  const ScratchFolder folder;
  MetricsWriter writer({.folder = folder / "a/b"});
  for (std::int64_t step = 0; step < 3; ++step) {
    writer.write(metrics_at(step));
    EXPECT_EQ(steps_in(folder / "a/b" / kMetricsFile).size(), static_cast<std::size_t>(step + 1));
  }
}

TEST(Metrics, ResumingKeepsWhatWasDoneAndCutsWhatWasUndone) {
  struct Case {
    const char* fact;
    const char* tail;  // what a crash left behind four lines
    std::int64_t first_step;
    std::vector<std::int64_t> steps;  // after two more
  };
  const Case cases[] = {
      {"a clean end", "", 4, {0, 1, 2, 3, 4, 5}},
      {"a torn line", "{\"step\":5,\"lo", 4, {0, 1, 2, 3, 4, 5}},
      {"a whole line without its end", "{\"step\":5}", 4, {0, 1, 2, 3, 4, 5}},
      {"steps behind the checkpoint", "", 2, {0, 1, 2, 3}},
      {"steps behind the checkpoint and a torn line", "{\"st", 1, {0, 1, 2}},
      {"a gap", "", 9, {0, 1, 2, 3, 9, 10}},
  };
  for (const Case& c : cases) {
    const ScratchFolder folder;
    write_steps(folder.path(), 0, 4);
    const std::filesystem::path file = folder / kMetricsFile;
    write_bytes(file, read_bytes(file) + c.tail);
    write_steps(folder.path(), c.first_step, c.first_step + 2);
    EXPECT_EQ(steps_in(file), c.steps) << c.fact;
  }
}

TEST(Metrics, ATornFirstLineIsNoEarlierRun) {
  const ScratchFolder folder;
  write_bytes(folder / kMetricsFile, "{\"step\":0,");
  write_steps(folder.path(), 0, 1);
  EXPECT_EQ(steps_in(folder / kMetricsFile), std::vector<std::int64_t>{0});
}

TEST(Metrics, ANewRunLeavesAnEarlierOneAlone) {
  const ScratchFolder folder;
  write_steps(folder.path(), 0, 3);
  const Mistake found = mistake_of("an earlier run", [&] { write_steps(folder.path(), 0, 1); });
  EXPECT_TRUE(holds(found.what, "metrics of an earlier run"));
  EXPECT_EQ(steps_in(folder / kMetricsFile).size(), 3U);
}

TEST(Metrics, AForeignFileIsRefusedAndKept) {
  const ScratchFolder folder;
  const std::string text = "{\"step\":0}\nmy notes\n";
  write_bytes(folder / kMetricsFile, text);
  const Mistake found = mistake_of(
      "notes", [&] { MetricsWriter({.folder = folder.path(), .resumes = true, .first_step = 5}); });
  EXPECT_TRUE(holds(found.where, (folder / kMetricsFile).string() + ": line 2"));
  EXPECT_EQ(read_bytes(folder / kMetricsFile), text);
}

TEST(Metrics, AFullDiskLeavesWholeLinesAndIsToldOnce) {
  const ScratchFolder folder;
  MetricsWriter writer({.folder = folder.path()});
  const auto line = static_cast<rlim_t>(json_line(metrics_at(0)).size() + 1);
  std::size_t told = 0;
  {
    const FullDisk disk(2 * line + line / 2);  // in the middle of the third line
    for (std::int64_t step = 0; step < 6; ++step) told += writer.write(metrics_at(step)).size();
  }
  EXPECT_EQ(told, 2U);                         // the lines and the events
  told += writer.write(metrics_at(6)).size();  // there is room again
  EXPECT_EQ(told, 2U);
  EXPECT_EQ(steps_in(folder / kMetricsFile), (std::vector<std::int64_t>{0, 1, 6}));
  const std::vector<Mistake> incomplete = writer.incomplete();
  ASSERT_EQ(incomplete.size(), 2U);
  EXPECT_TRUE(holds(incomplete[0].what, "4 steps are missing in it: "));
  EXPECT_EQ(incomplete[0].where, (folder / kMetricsFile).string());
}

TEST(Metrics, EventsAreWholeRecordsOnAFullDisk) {
  const ScratchFolder folder;
  EventFile events(folder / "events", 0);
  const Scalar scalar{"train/loss", 1};
  events.write(0, 0, {&scalar, 1});
  const std::string whole = read_bytes(folder / "events");
  {
    const FullDisk disk(whole.size() + 5);
    events.write(1, 0, {&scalar, 1});
  }
  EXPECT_EQ(read_bytes(folder / "events"), whole);
  EXPECT_EQ(events.file().missing(), 1);
}

TEST(Metrics, ADeviceWithoutRoomDoesNotEndTheRun) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / kMetricsFile);
  MetricsWriter writer({.folder = folder.path(), .tensorboard = false});
  const std::vector<Mistake> told = writer.write(metrics_at(0));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(holds(told[0].what, "No space left"));
}

TEST(Metrics, AFolderBelongsToOneRunAtATime) {
  const ScratchFolder folder;
  {
    const MetricsWriter first({.folder = folder.path()});
    const Mistake found = mistake_of("two runs", [&] { MetricsWriter({folder.path()}); });
    EXPECT_TRUE(holds(found.what, "another run is writing this file"));
    EXPECT_EQ(found.where, (folder / kMetricsFile).string());
  }
  MetricsWriter({folder.path()});  // the first has ended before a step: nothing is lost
}

TEST(Metrics, AnEarlierRunIsToldBeforeTheWork) {
  const ScratchFolder folder;
  EXPECT_NO_THROW(expect_new_run(folder / "absent"));
  write_bytes(folder / kMetricsFile, "{\"step\":0,");
  EXPECT_NO_THROW(expect_new_run(folder.path()));  // torn
  write_steps(folder.path(), 0, 1);
  const Mistake found = mistake_of("earlier", [&] { expect_new_run(folder.path()); });
  EXPECT_TRUE(holds(found.what, "metrics of an earlier run"));
  EXPECT_EQ(found.fix.find("resume"), std::string::npos);
}

TEST(Metrics, AFolderThatCannotBeMadeIsAnError) {
  const ScratchFolder folder;
  write_bytes(folder / "file", "");
  const Mistake found =
      mistake_of("a file as a folder", [&] { MetricsWriter({folder / "file/inside"}); });
  EXPECT_TRUE(holds(found.what, "cannot make the folder"));
  std::filesystem::create_directory(folder / kMetricsFile);
  EXPECT_TRUE(
      holds(mistake_of("a folder as the file", [&] { MetricsWriter({folder.path()}); }).what,
            "this is a folder"));
}

}  // namespace
}  // namespace braid::train
