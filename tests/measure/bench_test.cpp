// Timings of all ranks at once: their statistics, that ranks agree, that the journal is used.

#include "runtime/measure/bench.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "runtime/comm/in_process.h"
#include "tests/support/files.h"

namespace braid::measure {
namespace {

const c10::Device kCpu(c10::kCPU);
const BenchOptions kQuick{
    .warm_up = 0, .least_repetitions = 1, .most_repetitions = 1, .enough_seconds = 0};

struct TimingCase {
  const char* fact;
  std::vector<double> seconds;
  double median, spread;
};

TEST(Robust, TakesTheMedianAndTheMiddleHalf) {
  const TimingCase cases[] = {
      {"one repetition has no spread", {3}, 3, 0},
      {"of two the median lies between them", {1, 3}, 2, 0.5},              // (2.5 - 1.5) / 2
      {"the order does not matter", {5, 1, 3, 2, 4}, 3, 2.0 / 3},           // (4 - 2) / 3
      {"one outlier moves neither", {1, 1, 1, 1, 1000}, 1, 0},              // both quartiles are 1
      {"quartiles between repetitions are drawn", {1, 2, 3, 4}, 2.5, 0.6},  // (3.25 - 1.75) / 2.5
  };
  for (const TimingCase& c : cases) {
    const Timing timing = robust(c.seconds);
    EXPECT_DOUBLE_EQ(timing.seconds, c.median) << c.fact;
    EXPECT_NEAR(timing.spread, c.spread, 1e-12) << c.fact;
  }
}

TEST(Bench, EveryRankReturnsTheMeanOverAllRanks) {
  comm::run_in_process(4, [](comm::Group& world) {
    Bench bench(world, kCpu, {}, kQuick);
    const auto found = bench.run("rank", [&] {
      return std::vector<double>{1.0 * world.rank(), 5};
    });
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(*found, (std::vector<double>{1.5, 5}));  // (0 + 1 + 2 + 3) / 4
  });
}

TEST(Bench, TakesFromTheJournalOfRankZeroWhatItHas) {
  const ScratchFolder folder;
  const std::vector<Fact> facts = {{"ranks", "2"}};
  Journal(folder / "j", facts).add("known", {{7}, 0.25});
  std::atomic<int> worked = 0;
  comm::run_in_process(2, [&](comm::Group& world) {
    Journal journal = world.rank() == 0 ? Journal(folder / "j", facts) : Journal();
    Bench bench(world, kCpu, std::move(journal), kQuick);
    const auto work = [&] {
      ++worked;
      return std::vector<double>{1};
    };
    EXPECT_EQ(bench.run("known", work).value_or(std::vector<double>{}), std::vector<double>{7});
    EXPECT_EQ(bench.run("new", work).value_or(std::vector<double>{}), std::vector<double>{1});
    EXPECT_DOUBLE_EQ(bench.noise().worst, 0.25);
    EXPECT_EQ(bench.noise().worst_name, "known");
    EXPECT_EQ(bench.noise().measurements, 2);
  });
  EXPECT_EQ(worked, 2);  // "new", once on each rank
  EXPECT_EQ(Journal(folder / "j", facts).find("new").value_or(Finding{}).values,
            std::vector<double>{1});
}

TEST(Bench, AllRanksRepeatEquallyOften) {
  std::mutex mutex;
  std::vector<int> calls;
  comm::run_in_process(3, [&](comm::Group& world) {
    Bench bench(world, kCpu, {},
                {.warm_up = 1, .least_repetitions = 2, .most_repetitions = 9, .enough_seconds = 1});
    int mine = 0;
    bench.run("key", [&] { return std::vector<double>{bench.time([&] { ++mine; })}; });
    const std::scoped_lock lock(mutex);
    calls.push_back(mine);
  });
  EXPECT_EQ(calls, std::vector<int>(3, 10));  // a warm-up and the most: all are short
}

TEST(Bench, LeavesOutWhatComesAfterTheLimit) {
  comm::run_in_process(2, [](comm::Group& world) {
    BenchOptions options = kQuick;
    options.limit = std::chrono::seconds(0);
    Bench bench(world, kCpu, {}, options);
    EXPECT_FALSE(bench.run("late", [] { return std::vector<double>{1}; }).has_value());
    EXPECT_EQ(bench.skipped(), 1);
    EXPECT_EQ(bench.noise().measurements, 0);
  });
}

}  // namespace
}  // namespace braid::measure
