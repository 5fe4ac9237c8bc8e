// What a host leaves this process, from files that look like the kernel's, and plans that fit.

#include "runtime/measure/room.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/comm/in_process.h"
#include "runtime/measure/host.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"

namespace braid::measure {
namespace {

constexpr std::int64_t kMi = 1 << 20;

// Files by path, below a folder that stands for the root.
class Root : public ScratchFolder {
 public:
  explicit Root(const std::vector<std::pair<std::string, std::string>>& files) {
    add("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapFree: 9999 kB\n");
    for (const auto& [file, text] : files) add(file, text);
  }
  std::int64_t free_mi() const { return free_host_memory(path()).value() / kMi; }

 private:
  void add(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((path() / file).parent_path());
    std::ofstream(path() / file) << text;
  }
};

TEST(FreeHostMemory, IsTheLeastThatKernelAndControlGroupsLeave) {
  struct Case {
    const char* fact;
    std::vector<std::pair<std::string, std::string>> files;
    std::int64_t free_mi;
  };
  const std::string g = std::to_string(1 << 30);
  const Case cases[] = {
      {"no control groups: what the kernel says", {}, 4096},
      {"a group without a limit",
       {{"sys/fs/cgroup/memory.max", "max\n"}, {"sys/fs/cgroup/memory.current", "123\n"}},
       4096},
      {"a container: its limit less what is used",
       {{"sys/fs/cgroup/memory.max", g}, {"sys/fs/cgroup/memory.current", "268435456"}},
       768},
      {"page cache goes first",
       {{"sys/fs/cgroup/memory.max", g},
        {"sys/fs/cgroup/memory.current", "536870912"},
        {"sys/fs/cgroup/memory.stat", "anon 268435456\ninactive_file 268435456\n"}},
       768},
      {"a batch system's group, found by its path, and the job's around it",
       {{"proc/self/cgroup", "0::/system.slice/job_7/step_0\n"},
        {"sys/fs/cgroup/system.slice/job_7/step_0/memory.max", "max"},
        {"sys/fs/cgroup/system.slice/job_7/step_0/memory.current", "0"},
        {"sys/fs/cgroup/system.slice/job_7/memory.max", g},
        {"sys/fs/cgroup/system.slice/job_7/memory.current", "0"}},
       1024},
      {"version 1",
       {{"proc/self/cgroup", "12:cpu:/x\n5:memory:/docker/a\n"},
        {"sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", g},
        {"sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes", "268435456"}},
       768},
      {"more used than the limit leaves nothing",
       {{"sys/fs/cgroup/memory.max", "1"}, {"sys/fs/cgroup/memory.current", "2"}},
       0},
  };
  for (const Case& c : cases) EXPECT_EQ(Root(c.files).free_mi(), c.free_mi) << c.fact;
}

TEST(Shortage, ATinyPlanHasRoomAndAWorldOfAnotherSizeIsNotJudged) {
  const Plan plan = PlanDice(1).plan();
  const int devices = plan.cluster.num_devices();
  for (const int ranks : {devices, devices + 1})
    comm::run_in_process(ranks, [&](comm::Group& world) {
      EXPECT_FALSE(find_shortage(plan, {}, world, c10::kCPU).has_value());
    });
}

TEST(Shortage, NamesBothFiguresAndTheWayOut) {
  const Mistake mistake =
      mistake_of(Shortage{"the memory of a", 8, Bytes(3 << 20), Bytes(1 << 20)}, "--plan p.json");
  EXPECT_EQ(mistake.what, "8 ranks need at least 3.0 MiB of the memory of a, and 1.0 MiB are free");
  EXPECT_EQ(mistake.where, "--plan p.json");
  EXPECT_TRUE(holds(mistake.fix, "--dry-run"));
}

}  // namespace
}  // namespace braid::measure
