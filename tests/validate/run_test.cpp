#include "planner/validate/run.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace braid {
namespace {

std::vector<MeasuredRun> read(const std::string& text) {
  const ScratchFolder folder;
  write_bytes(folder / "runs.json", text);
  return read_runs(folder / "runs.json");
}

TEST(ReadRuns, TakesWhatASourceSaysAndLeavesTheRestEmpty) {
  const auto runs = read(R"({"about": "x", "rows": [{"set": "s", "id": 3, "gpu": "A100",
      "hidden": 64, "mbs": null, "flash_attn": true, "partition": [0, 2, 4],
      "measured": {"iter_time_s": 1.5, "mfu": 0.4}, "source": "somewhere"}]})");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].id, "3");
  EXPECT_EQ(runs[0].hidden, 64);
  EXPECT_EQ(runs[0].micro_batch, 0);
  EXPECT_EQ(runs[0].flash, true);
  EXPECT_EQ(runs[0].partition, (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(runs[0].seconds, 1.5);
  EXPECT_EQ(runs[0].tokens, std::nullopt);
}

TEST(ReadRuns, TakesADerivedTimeWhereNoneWasMeasured) {
  const auto runs = read(R"({"rows": [{"set": "s", "measured": {"tflops_per_gpu_hw": 137},
      "derived": {"iter_time_s": 3.5}}]})");
  EXPECT_EQ(runs[0].seconds, 3.5);
}

TEST(ReadRuns, ReadsRanksInBothForms) {
  const auto runs = read(R"({"rows": [
      {"set": "s", "measured": {"per_rank_mem":
        [{"stage": 1, "rank": 4, "max_allocated_mb": 2, "max_reserved_mb": 3}]}},
      {"set": "s", "measured": {"stage_alloc_mb": [4, 5], "stage_reserved_mb": [6, 7]}}]})");
  ASSERT_EQ(runs[0].ranks.size(), 1U);
  EXPECT_EQ(runs[0].ranks[0].reserved, 3 * 1048576.0);
  ASSERT_EQ(runs[1].ranks.size(), 2U);
  EXPECT_EQ(runs[1].ranks[1].allocated, 5 * 1048576.0);
}

TEST(ReadRuns, RefusesWhatIsNoListOfRuns) {
  EXPECT_TRUE(holds(mistake_of("an empty list", [] { read(R"({"rows": []})"); }).what, "no run"));
  const Mistake unnamed = mistake_of("no set", [] { read(R"({"rows": [{"measured": {}}]})"); });
  EXPECT_TRUE(holds(unnamed.what, "'set' is missing"));
  EXPECT_TRUE(holds(unnamed.where, "rows[0]"));
  const Mistake kind = mistake_of("text for a number", [] {
    read(R"({"rows": [{"set": "s", "hidden": "x", "measured": {}}]})");
  });
  EXPECT_TRUE(holds(kind.where, "hidden"));
}

}  // namespace
}  // namespace braid
