// Where a profile holds: facts that all ranks share, and the refusal that names what differs.

#include "runtime/measure/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>

#include "runtime/comm/in_process.h"
#include "runtime/measure/host.h"
#include "tests/support/files.h"

namespace braid::measure {
namespace {

const c10::Device kCpu(c10::kCPU);

std::vector<std::vector<Fact>> facts_by_rank(int ranks) {
  std::mutex mutex;
  std::vector<std::vector<Fact>> all;
  comm::run_in_process(ranks, [&](comm::Group& world) {
    auto facts = facts_of(world, kCpu, comm::BackendKind::in_process);
    const std::scoped_lock lock(mutex);
    all.push_back(std::move(facts));
  });
  return all;
}

std::string value_of(const std::vector<Fact>& facts, const std::string& name) {
  for (const Fact& fact : facts)
    if (fact.name == name) return fact.value;
  return "";
}

TEST(Facts, AreTheSameOnAllRanks) {
  const auto all = facts_by_rank(3);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
  EXPECT_EQ(value_of(all[0], "ranks"), "3");
  EXPECT_EQ(value_of(all[0], "nodes"), "1");
  EXPECT_EQ(value_of(all[0], "ranks of a node"), "3");
  EXPECT_EQ(value_of(all[0], "backend"), "in_process");
  for (const char* name : {"program", "libtorch", "cpu", "cores of a node", "threads of a rank"})
    EXPECT_NE(value_of(all[0], name), "") << name;
}

TEST(Facts, DoNotNameTheHost) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  const auto all = facts_by_rank(2);
  for (const Fact& fact : all.front())
    EXPECT_EQ(fact.value.find(name), std::string::npos) << fact.name;
}

TEST(Facts, AreTheSameTwice) { EXPECT_EQ(facts_by_rank(2), facts_by_rank(2)); }

TEST(Machine, CpuRanksShareTheMemoryOfTheirHost) {
  comm::run_in_process(2, [](comm::Group& world) {
    const Machine machine = find_machine(world, kCpu, comm::BackendKind::in_process);
    ASSERT_EQ(machine.kinds.size(), 1U);
    EXPECT_EQ(machine.kinds[0].nodes, 1);
    EXPECT_EQ(machine.kinds[0].ranks, 2);
    EXPECT_EQ(machine.ranks_per_gpu, 0);
    EXPECT_GT(machine.kinds[0].memory, Bytes(0));
    EXPECT_LE(2 * machine.kinds[0].memory.value(), find_host().memory.value());
  });
}

TEST(Machine, KnowsTheKindOfARank) {
  Machine machine;
  machine.kinds = {{.nodes = 2, .ranks = 4, .device = "a", .memory = Bytes(1)},
                   {.nodes = 1, .ranks = 2, .device = "b", .memory = Bytes(1)}};
  EXPECT_EQ(machine.num_nodes(), 3);
  EXPECT_EQ(machine.kind_of(0), 0);
  EXPECT_EQ(machine.kind_of(7), 0);
  EXPECT_EQ(machine.kind_of(8), 1);
  EXPECT_EQ(machine.kind_of(9), 1);
}

TEST(GatherTexts, GivesAllRanksTheTextsOfAll) {
  comm::run_in_process(3, [](comm::Group& world) {
    const std::string mine(static_cast<std::size_t>(world.rank()) * 8, 'x');
    EXPECT_THAT(gather_texts(mine, world, kCpu),
                testing::ElementsAre("", "xxxxxxxx", "xxxxxxxxxxxxxxxx"));
  });
}

TEST(Refusal, NamesEveryFactThatDiffers) {
  Profile profile;
  profile.taken_on = {{"ranks", "8"}, {"gpu", "H200"}, {"libtorch", "2.11.0"}};
  const std::vector<Fact> now = {{"ranks", "4"}, {"libtorch", "2.11.0"}, {"cpu", "Xeon"}};
  const Mistake mistake =
      mistake_of("another machine's profile", [&] { expect_taken_here(profile, now, "p.json"); });
  EXPECT_TRUE(holds(mistake.what, "ranks: '8' then, '4' now"));
  EXPECT_TRUE(holds(mistake.what, "gpu: 'H200' then, unknown now"));
  EXPECT_TRUE(holds(mistake.what, "cpu: unknown then, 'Xeon' now"));
  EXPECT_FALSE(holds(mistake.what, "libtorch"));
  EXPECT_TRUE(holds(mistake.where, "p.json"));
  EXPECT_TRUE(holds(mistake.fix, "braid profile"));
}

TEST(Refusal, LeavesEqualFactsAndProfilesWithoutFactsAlone) {
  Profile profile;
  expect_taken_here(profile, {{"ranks", "4"}}, "p.json");
  profile.taken_on = {{"ranks", "4"}};
  expect_taken_here(profile, {{"ranks", "4"}}, "p.json");
}

}  // namespace
}  // namespace braid::measure
