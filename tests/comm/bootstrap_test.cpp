#include "runtime/comm/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/core/error.h"

namespace braid::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<Launch> detect(const Variables& variables) {
  return detect_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  });
}

TEST(Bootstrap, ReadsTheEnvironmentOfEachLauncher) {
  struct Case {
    const char* fact;
    Variables variables;
    Launch launch;
  };
  const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  const Variables srun = {{"SLURM_PROCID", "9"},
                          {"SLURM_NTASKS", "16"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODELIST", "node[003-007,012]"},
                          {"SLURM_JOB_ID", "41234"}};
  const Variables torchrun = {{"RANK", "3"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "3"},
                              {"MASTER_ADDR", "host-a"},
                              {"MASTER_PORT", "29511"}};
  const auto both = [](Variables a, const Variables& b) {
    a.insert(b.begin(), b.end());
    return a;
  };
  const Case cases[] = {
      {"mpirun on one machine", mpirun, {5, 8, 1, "127.0.0.1", 29500, "mpirun"}},
      {"mpirun, and a user who names rank 0's place",
       both(mpirun, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "1234"}}),
       {5, 8, 1, "10.0.0.7", 1234, "mpirun"}},
      {"srun: the first node, and a port of the job's", srun, {9, 16, 1, "node003", 21234, "srun"}},
      {"torchrun", torchrun, {3, 4, 3, "host-a", 29511, "torchrun"}},
      {"torchrun inside a Slurm job", both(torchrun, srun), {3, 4, 3, "host-a", 29511, "torchrun"}},
      {"mpirun inside a Slurm job: its ranks, the job's nodes",
       both(mpirun, srun),
       {5, 8, 1, "node003", 21234, "mpirun"}},
  };
  for (const Case& c : cases) {
    const std::optional<Launch> launch = detect(c.variables);
    ASSERT_TRUE(launch.has_value()) << c.fact;
    EXPECT_EQ(launch->rank, c.launch.rank) << c.fact;
    EXPECT_EQ(launch->size, c.launch.size) << c.fact;
    EXPECT_EQ(launch->local_rank, c.launch.local_rank) << c.fact;
    EXPECT_EQ(launch->address, c.launch.address) << c.fact;
    EXPECT_EQ(launch->port, c.launch.port) << c.fact;
    EXPECT_EQ(launch->launcher, c.launch.launcher) << c.fact;
  }
}

TEST(Bootstrap, WithoutALauncherThereIsNoLaunch) {
  EXPECT_FALSE(detect({}).has_value());
  EXPECT_FALSE(detect({{"MASTER_ADDR", "left over"}}).has_value());
  // The shell of a job, before srun.
  EXPECT_FALSE(detect({{"SLURM_NTASKS", "4"}, {"SLURM_NODELIST", "a[1-2]"}}).has_value());
}

TEST(Bootstrap, HalfSetOrContradictoryEnvironmentsAreErrorsThatNameTheVariable) {
  struct Case {
    Variables variables;
    const char* what;
    const char* fix;
  };
  const Case cases[] = {
      {{{"RANK", "0"}}, "WORLD_SIZE is not set", "start with torchrun, or set RANK"},
      {{{"WORLD_SIZE", "2"}}, "RANK is not set", "start with torchrun"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "LOCAL_RANK is not set", "unset them all"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}},
       "MASTER_ADDR is not set",
       "host of rank 0"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}},
       "RANK is 2, but WORLD_SIZE says that there are 2 ranks",
       "start with torchrun"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}},
       "LOCAL_RANK is 2, more than the rank 1 in RANK",
       "start with torchrun"},
      {{{"RANK", "one"}, {"WORLD_SIZE", "2"}},
       "RANK is \"one\", not a whole number of at least 0",
       "start with torchrun"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2x"}}, "WORLD_SIZE is \"2x\"", "start with torchrun"},
      {{{"RANK", "0"}, {"WORLD_SIZE", ""}}, "WORLD_SIZE is \"\"", "start with torchrun"},
      {{{"RANK", "0"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "0"},
        {"MASTER_ADDR", "a"},
        {"MASTER_PORT", "70000"}},
       "MASTER_PORT is \"70000\", not a whole number from 1 to 65535",
       "a free port"},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       "OMPI_COMM_WORLD_LOCAL_RANK is not set",
       "start with mpirun"},
      {{{"SLURM_PROCID", "0"}}, "SLURM_NTASKS is not set", "start with srun"},
      {{{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NODELIST", "node[3-"}},
       "cannot read the list of nodes \"node[3-\"",
       "set MASTER_ADDR"},
  };
  for (const Case& c : cases) {
    try {
      detect(c.variables);
      ADD_FAILURE() << "no error: " << c.what;
    } catch (const Error& error) {
      EXPECT_THAT(error.mistake().what, HasSubstr(c.what));
      EXPECT_THAT(error.mistake().fix, HasSubstr(c.fix)) << c.what;
      EXPECT_THAT(error.mistake().where, HasSubstr("environment")) << c.what;
    }
  }
}

TEST(Bootstrap, SlurmListsUnfoldWithTheirLeadingZeros) {
  EXPECT_THAT(slurm_hosts("a"), ElementsAre("a"));
  EXPECT_THAT(slurm_hosts("a,b-1"), ElementsAre("a", "b-1"));
  EXPECT_THAT(slurm_hosts("node[003-005,012]"),
              ElementsAre("node003", "node004", "node005", "node012"));
  EXPECT_THAT(slurm_hosts("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(slurm_hosts("login,r[1-2]c[7,9]x"),
              ElementsAre("login", "r1c7x", "r1c9x", "r2c7x", "r2c9x"));
  for (const char* wrong : {"", "a,", "n[", "n]1[", "n[]", "n[b-c]", "n[5-3]", "n[1-2"}) {
    EXPECT_THROW(slurm_hosts(wrong), Error) << wrong;
  }
}

TEST(Bootstrap, BackendsGoByName) {
  EXPECT_EQ(backend_of("mpi"), BackendKind::mpi);
  EXPECT_EQ(backend_of("nccl"), BackendKind::nccl);
  EXPECT_EQ(backend_of("in_process"), BackendKind::in_process);
  EXPECT_THROW(backend_of("gloo"), Error);
}

}  // namespace
}  // namespace braid::comm
