// Where verbs write their files: files, links, pipes, standard output, and disks that are full.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <string>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

constexpr const char* kFullDisk = "/dev/full";

TEST(Output, NamedMinusIsThePlanAlone) {
  const InputFolder folder;
  for (const char* name : {"-", "/dev/stdout"}) {
    const Outcome outcome = run_braid(plan_command({"--out", name}), folder.path());
    EXPECT_EQ(json_of(outcome)["format"], "braid.plan");
    EXPECT_TRUE(holds(outcome.error, "MFU")) << name;
    EXPECT_TRUE(holds(outcome.error, "The plan is on standard output.")) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "-"));
}

TEST(Output, OfTwoFilesOnStandardOutputIsRefused) {
  const InputFolder folder;
  make_plan(folder.path());
  const Outcome outcome = run_braid(
      {"train", "--plan", "plan.json", "--steps", "2", "--out", "-", "--trace", "/dev/stdout"},
      folder.path());
  if (holds(outcome.error, "has no runtime")) GTEST_SKIP() << "this program does not train";
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_TRUE(holds(outcome.error, "two files are to be written to standard output"));
}

TEST(Output, ReachesALinksTargetAndAPipesReader) {
  const InputFolder folder;
  std::filesystem::create_symlink("target.json", folder / "link.json");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  auto reader = std::async(std::launch::async, [&] { return read_text(folder / "pipe"); });
  EXPECT_EQ(run_braid(plan_command({"--out", "link.json"}), folder.path()).exit, 0);
  EXPECT_EQ(run_braid(plan_command({"--out", "pipe"}), folder.path()).exit, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.json"));
  EXPECT_EQ(reader.get(), read_text(folder / "target.json"));
}

TEST(Output, ToAFullDiskIsRefusedBeforeTheSearch) {
  if (!std::filesystem::exists(kFullDisk)) GTEST_SKIP() << "there is no " << kFullDisk;
  const InputFolder folder;
  const Outcome outcome = run_braid(plan_command({"--out", kFullDisk}), folder.path());
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(holds(outcome.error, "No space left"));
  EXPECT_TRUE(holds(outcome.error, "--out /dev/full"));
}

TEST(Output, OfProfilesAndTracesGoesToStandardOutputToo) {
  const InputFolder folder;
  make_plan(folder.path());
  const Outcome trace = run_braid({"simulate", "plan.json", "--trace", "-"}, folder.path());
  EXPECT_TRUE(json_of(trace).contains("traceEvents"));
  EXPECT_TRUE(holds(trace.error, "The trace is on standard output"));
}

TEST(Output, ThatIsReadAgainMustBeAFile) {
  const InputFolder folder;
  const Outcome outcome = run_braid({"compare", "--model", "model.json", "--cluster",
                                     "cluster.json", "--global-batch", "8", "--out", "/dev/null"},
                                    folder.path());
  if (holds(outcome.error, "has no runtime")) GTEST_SKIP() << "this program does not train";
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_TRUE(holds(outcome.error, "no regular file"));
}

}  // namespace
}  // namespace braid
