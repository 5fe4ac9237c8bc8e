// The whole measurement of a machine, on ranks that are threads: complete, and to be gone on with.

#include "runtime/measure/hardware.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "planner/core/json.h"
#include "planner/cost/network.h"
#include "runtime/comm/in_process.h"
#include "runtime/measure/hardware_parts.h"
#include "runtime/measure/overlap.h"
#include "runtime/measure/shapes.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"

namespace braid::measure {
namespace {

const c10::Device kCpu(c10::kCPU);
const HardwareOptions kTiny{
    .precision = Precision::fp32, .largest_message = Bytes(1 << 15), .room = Bytes(1 << 20)};
const std::vector<Fact> kFacts = {{"measures", "a test"}};

BenchOptions quick() {
  return {.warm_up = 0, .least_repetitions = 1, .most_repetitions = 1, .enough_seconds = 0};
}

struct Outcome {
  std::vector<Profile> profiles;  // of all ranks
  int anew = 0;                   // measurements that no journal had
  int skipped = 0;
  int announced = 0, asked = 0;  // measurements, as progress told and as came
};

Outcome measure(int ranks, const std::filesystem::path& journal_file, BenchOptions options) {
  Outcome outcome;
  std::mutex mutex;
  comm::run_in_process(ranks, [&](comm::Group& world) {
    Journal journal;
    BenchOptions mine = options;
    if (world.rank() == 0) {
      if (!journal_file.empty()) journal = Journal(journal_file, kFacts);
      mine.progress = [&](const BenchProgress& progress) {
        outcome.announced = progress.total;
        outcome.asked = progress.done + 1;
      };
    }
    const auto before = static_cast<int>(journal.size());
    Bench bench(world, kCpu, std::move(journal), mine);
    Profile profile = measure_hardware(bench, kTiny);
    const std::scoped_lock lock(mutex);
    outcome.profiles.push_back(std::move(profile));
    if (world.rank() == 0) {
      outcome.anew = static_cast<int>(bench.journal().size()) - before;
      outcome.skipped = bench.skipped();
    }
  });
  return outcome;
}

bool has_sample(const Profile& profile, Collective op, GroupShape group) {
  return std::ranges::any_of(profile.collectives, [&](const CollectiveSample& s) {
    return s.op == op && s.ranks == group.size && s.stride == group.stride;
  });
}

class Hardware : public testing::TestWithParam<int> {};

TEST_P(Hardware, MeasuresEveryGroupThatAPlanUses) {
  const int ranks = GetParam();
  const Outcome outcome = measure(ranks, {}, quick());
  const Profile& profile = outcome.profiles.front();
  PlanDice dice(11);
  int plans = 0;
  while (plans < 40) {
    const Plan plan = dice.plan();
    if (plan.mesh().devices != ranks) continue;
    ++plans;
    const Mesh mesh = plan.mesh();
    if (mesh.stages > 1) {
      EXPECT_TRUE(has_sample(profile, Collective::point_to_point, {2, stage_distance(mesh)}));
    }
    for (const StagePlan& stage : plan.stages)
      for (const Strategy& strategy : stage.strategies) {
        std::vector<GroupShape> groups = {replica_group(mesh, strategy),
                                          expert_group(mesh, strategy)};
        for (const Axis axis : {Axis::data, Axis::context, Axis::tensor})
          groups.push_back(group_along(mesh, strategy, axis));
        for (const GroupShape& group : groups)
          for (const Collective op : {Collective::all_reduce, Collective::all_gather,
                                      Collective::reduce_scatter, Collective::all_to_all})
            EXPECT_TRUE(group.size == 1 || has_sample(profile, op, group))
                << name_of(op) << " " << group.size << "x" << group.stride;
      }
  }
}

TEST_P(Hardware, YieldsAProfileThatCanBeReadAndPlannedWith) {
  const int ranks = GetParam();
  const Outcome outcome = measure(ranks, {}, quick());
  const Json json = to_json(outcome.profiles.front());
  for (const Profile& profile : outcome.profiles) EXPECT_EQ(to_json(profile).dump(), json.dump());
  const Profile read = profile_from_json(parse_json(json.dump(), "p"), "p");
  EXPECT_EQ(to_json(read).dump(), json.dump());
  ASSERT_TRUE(read.cluster.has_value());
  EXPECT_EQ(read.cluster->num_devices(), ranks);
  EXPECT_EQ(read.context, Bytes(0)) << "a rank on a CPU sets nothing aside";
  EXPECT_GT(read.cluster->device_types.front().peak_fp32.value(), 1e6);
  EXPECT_EQ(read.overlaps.size(), 4U);
  EXPECT_EQ(read.meetings.size(), ranks == 2 ? 4U : 8U);
  for (const MeetingSample& s : read.meetings) {
    EXPECT_GT(s.apart, Seconds(0)) << s.ranks;
    EXPECT_GE(s.wait, 0) << s.ranks;
  }
  EXPECT_EQ(read.source, "braid profile hardware");
  EXPECT_FALSE(read.taken_on.empty());
  ASSERT_TRUE(read.noise.has_value());
  EXPECT_EQ(read.noise->measurements, outcome.asked);
  const Network network(*read.cluster, &read, 1);
  EXPECT_GT(network.all_gather(1e6, {ranks, 1}, {0, ranks}), 0);
}

TEST_P(Hardware, AnnouncesAsManyMeasurementsAsCome) {
  const Outcome outcome = measure(GetParam(), {}, quick());
  EXPECT_EQ(outcome.announced, outcome.asked);
  EXPECT_EQ(outcome.anew, outcome.asked);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Hardware, testing::Values(2, 4));

TEST(HardwareAlone, OneRankHasNoLinksAndStillACluster) {
  const Profile profile = measure(1, {}, quick()).profiles.front();
  EXPECT_TRUE(profile.collectives.empty());
  EXPECT_TRUE(profile.overlaps.empty());
  ASSERT_TRUE(profile.cluster.has_value());
  profile_from_json(to_json(profile), "p");
}

TEST(HardwareOfThree, ARankMayStandBy) {
  // Three stages: the last has nobody to send to.
  const Profile profile = measure(3, {}, quick()).profiles.front();
  EXPECT_TRUE(has_sample(profile, Collective::all_reduce, {3, 1}));
  EXPECT_TRUE(has_sample(profile, Collective::point_to_point, {2, 1}));
}

TEST(KilledRun, GoesOnFromItsJournal) {
  const ScratchFolder folder;
  const Outcome first = measure(2, folder / "j", quick());
  std::vector<std::string> lines;
  std::istringstream text(read_bytes(folder / "j"));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(std::ssize(lines), first.anew + 1);  // and the heading

  const std::size_t half = lines.size() / 2;
  std::string kept;
  for (std::size_t i = 0; i <= half; ++i) kept += lines[i] + "\n";
  kept += lines[half + 1].substr(0, 10);  // killed while writing
  write_bytes(folder / "j", kept);
  const Outcome second = measure(2, folder / "j", quick());
  EXPECT_EQ(second.anew, first.anew - static_cast<int>(half));

  const Outcome third = measure(2, folder / "j", quick());
  EXPECT_EQ(third.anew, 0);
  EXPECT_EQ(to_json(third.profiles.front()).dump(), to_json(second.profiles.front()).dump());
}

TEST(Limit, LeavesAProfileOfWhatThereIsAndAJournalToGoOnFrom) {
  const ScratchFolder folder;
  BenchOptions options = quick();
  options.limit = std::chrono::seconds(0);
  const Outcome cut = measure(2, folder / "j", options);
  EXPECT_EQ(cut.anew, 0);
  EXPECT_GT(cut.skipped, 10);
  EXPECT_FALSE(cut.profiles.front().cluster.has_value());
  EXPECT_EQ(measure(2, folder / "j", quick()).skipped, 0);
}

struct OverlapCase {
  const char* fact;
  std::vector<double> seconds;  // compute, compute beside communication, hidden communication
  double compute, communication;
};

TEST(Overlap, FactorsFollowFromThreeTimes) {
  const OverlapCase cases[] = {
      {"nothing disturbs: as much is hidden as compute lasts", {1, 1, 1}, 1, 1},
      {"communication waits for compute", {1, 1, 0}, 1, kNoProgress},
      {"communication at half speed", {1, 1, 0.5}, 1, 2},
      {"both slow down: 1.5 s of compute hide 1 s", {1, 1.5, 1}, 1.5, 1.5},
      {"what noise hides is no progress", {1, 1, 0.15}, 1, kNoProgress},
      {"what does not advance disturbs nobody", {1, 1.3, 0}, 1, kNoProgress},
      {"less than nothing hidden is no progress", {1, 1, -0.5}, 1, kNoProgress},
      {"noise makes nothing faster", {1, 0.9, 1}, 1, 1},
  };
  for (const OverlapCase& c : cases) {
    const OverlapSample sample = overlap_of(Collective::all_gather, 4, c.seconds, 0.2);
    EXPECT_DOUBLE_EQ(sample.compute, c.compute) << c.fact;
    EXPECT_DOUBLE_EQ(sample.communication, c.communication) << c.fact;
    EXPECT_EQ(sample.ranks, 4);
  }
}

}  // namespace
}  // namespace braid::measure
