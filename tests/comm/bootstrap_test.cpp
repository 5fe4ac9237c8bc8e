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
  const Variables srun = {{"SLURM_PROCID", "9"},     {"SLURM_NTASKS", "16"},
                          {"SLURM_LOCALID", "1"},    {"SLURM_NODELIST", "node[003-007,012]"},
                          {"SLURM_JOB_ID", "41234"}, {"SLURM_STEP_ID", "0"}};
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
      {"srun: the first node, and a port of the job's", srun, {9, 16, 1, "node003", 25234, "srun"}},
      {"torchrun", torchrun, {3, 4, 3, "host-a", 29511, "torchrun"}},
      {"torchrun inside a Slurm job", both(torchrun, srun), {3, 4, 3, "host-a", 29511, "torchrun"}},
      {"mpirun inside a Slurm job: its ranks, the job's nodes",
       both(mpirun, srun),
       {5, 8, 1, "node003", 25234, "mpirun"}},
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
      {{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "3"}},
       "SLURM_NTASKS is not set",
       "start with srun"},
      {{{"SLURM_PROCID", "0"},
        {"SLURM_STEP_ID", "0"},
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

// What Slurm 22.05 sets in the batch script of a job of 2 nodes with 4 tasks each.
Variables batch_script() {
  return {{"SLURM_JOB_ID", "7000"},
          {"SLURM_PROCID", "0"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "0"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_NPROCS", "8"},
          {"SLURM_NNODES", "2"},
          {"SLURM_NODELIST", "n[1-2]"},
          {"SLURM_JOB_NODELIST", "n[1-2]"},
          {"SLURM_TASKS_PER_NODE", "4(x2)"}};
}

// What a task of a step that srun starts inside of that job finds: the job's variables, with its
// own.
Variables step(int id, int tasks, int rank, int local_rank, int node, const char* nodes,
               const char* tasks_per_node) {
  Variables variables = batch_script();
  for (const auto& [name, value] : Variables{{"SLURM_STEP_ID", std::to_string(id)},
                                             {"SLURM_STEP_NODELIST", nodes},
                                             {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node},
                                             {"SLURM_NTASKS", std::to_string(tasks)},
                                             {"SLURM_PROCID", std::to_string(rank)},
                                             {"SLURM_LOCALID", std::to_string(local_rank)},
                                             {"SLURM_NODEID", std::to_string(node)}})
    variables[name] = value;
  return variables;
}

Variables torchrun(const char* restarts) {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "host-a"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RESTART_COUNT", restarts}};
}

TEST(Bootstrap, ABatchScriptIsNoRankUntilSrunStartsIt) {
  EXPECT_FALSE(detect(batch_script()).has_value());
  // A shell of salloc, and the step of processes that came by ssh.
  for (const char* id : {"4294967290", "4294967292", "batch", ""}) {
    Variables variables = batch_script();
    variables["SLURM_STEP_ID"] = id;
    EXPECT_FALSE(detect(variables).has_value()) << id;
  }
  EXPECT_TRUE(detect(step(0, 8, 0, 0, 0, "n[1-2]", "4(x2)")).has_value());
}

TEST(Bootstrap, StepsInsideAJobHaveTheirOwnNodesPortsAndKeys) {
  const Launch first = *detect(step(3, 4, 1, 1, 0, "n2", "4"));
  const Launch second = *detect(step(4, 4, 1, 1, 0, "n1", "4"));
  EXPECT_EQ(first.address, "n2") << "the step's first node, not the job's";
  EXPECT_EQ(second.address, "n1");
  EXPECT_EQ(first.run, "srun 7000.3");
  EXPECT_EQ(second.run, "srun 7000.4");
  EXPECT_NE(first.port, second.port);
  for (const Launch& launch : {first, second}) {
    EXPECT_GE(launch.port, 20000);
    EXPECT_LT(launch.port, 32768) << "the kernel gives higher ones to whoever connects";
  }
}

TEST(Bootstrap, ARankKnowsTheProcessesOfItsNode) {
  EXPECT_EQ(detect(step(0, 16, 9, 1, 1, "n[1-2]", "8(x2)"))->local_size, 8);
  EXPECT_EQ(detect(step(0, 10, 9, 1, 1, "n[1-2]", "8,2"))->local_size, 2);
  EXPECT_EQ(detect(torchrun("0"))->local_size, 4);
  const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(detect(mpirun)->local_size, 2);
  // Without a figure that can be, all processes are taken to be here.
  for (const char* wrong : {"8(x", "1", "99", "0", "x"})
    EXPECT_EQ(detect(step(0, 16, 9, 1, 1, "n[1-2]", wrong))->local_size, 16) << wrong;
}

TEST(Bootstrap, ThreadsAreSharedByTheRanksOfANode) {
  EXPECT_EQ(threads_of(64, detect(step(0, 16, 9, 1, 1, "n[1-2]", "8(x2)"))->local_size), 8);
  EXPECT_EQ(threads_of(2, 8), 1);
  EXPECT_EQ(threads_of(8, 1), 8);
}

TEST(Bootstrap, EveryAttemptOfTorchrunHasKeysOfItsOwnInTheAgentsStore) {
  const Launch first = *detect(torchrun("0")), again = *detect(torchrun("1"));
  EXPECT_TRUE(first.agent_serves);
  EXPECT_EQ(first.port, again.port);
  EXPECT_NE(first.run, again.run);
  Variables alone = torchrun("0");
  alone.erase("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_FALSE(detect(alone)->agent_serves) << "rank 0 serves the store";
}

TEST(Bootstrap, SrunConnectsMpiOnlyWhereItIsAskedTo) {
  Variables variables = step(0, 8, 0, 0, 0, "n[1-2]", "4(x2)");
  EXPECT_FALSE(detect(variables)->pmi);
  variables["PMIX_RANK"] = "0";
  EXPECT_TRUE(detect(variables)->pmi);
}

TEST(Bootstrap, TwoRunsOnOneHostDoNotMeet) {
  const auto mpirun = [](const char* name) {
    return Variables{{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                     {"PMIX_NAMESPACE", name}};
  };
  const Launch one = *detect(mpirun("2893414401")), other = *detect(mpirun("2811953153"));
  EXPECT_NE(one.run, other.run);
  EXPECT_NE(one.port, other.port);
  Variables job = step(0, 8, 0, 0, 0, "n[1-2]", "4(x2)");
  const Launch mine = *detect(job);
  job["SLURM_JOB_ID"] = "7001";
  EXPECT_NE(detect(job)->run, mine.run);
  EXPECT_NE(detect(job)->port, mine.port);
}

TEST(Bootstrap, ADeviceIsTheLocalRanksUnlessOnlyOneIsVisible) {
  Launch launch = *detect(step(0, 8, 6, 2, 1, "n[1-2]", "4(x2)"));
  EXPECT_EQ(device_of(launch, 4, false), 2);
  EXPECT_EQ(device_of(launch, 1, false), 0) << "srun --gpus-per-task=1 shows a task its own";
  EXPECT_EQ(device_of(launch, 2, true), 0) << "ranks that share GPUs take turns on them";
  for (const int visible : {0, 2}) {
    try {
      device_of(launch, visible, false);
      ADD_FAILURE() << "no error with " << visible;
    } catch (const Error& error) {
      EXPECT_THAT(error.mistake().what,
                  HasSubstr(visible == 0 ? "no GPU is visible" : "local rank 2 has no GPU: 2 are"));
    }
  }
}

TEST(Bootstrap, SlurmTasksUnfold) {
  EXPECT_THAT(*slurm_tasks("2"), ElementsAre(2));
  EXPECT_THAT(*slurm_tasks("8(x2)"), ElementsAre(8, 8));
  EXPECT_THAT(*slurm_tasks("2(x3),1"), ElementsAre(2, 2, 2, 1));
  for (const char* wrong : {"", ",", "2,", "x", "2(x", "2(x)", "2(x0)", "-1", "2(x9999999)",
                            "1(x1048576),1(x1048576)", "2(x99999999999999999999)"})
    EXPECT_FALSE(slurm_tasks(wrong).has_value()) << wrong;
}

TEST(Bootstrap, SlurmListsUnfoldWithTheirLeadingZeros) {
  EXPECT_THAT(slurm_hosts("a"), ElementsAre("a"));
  EXPECT_THAT(slurm_hosts("a,b-1"), ElementsAre("a", "b-1"));
  EXPECT_THAT(slurm_hosts("node[003-005,012]"),
              ElementsAre("node003", "node004", "node005", "node012"));
  EXPECT_THAT(slurm_hosts("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(slurm_hosts("login,r[1-2]c[7,9]x"),
              ElementsAre("login", "r1c7x", "r1c9x", "r2c7x", "r2c9x"));
  for (const char* wrong : {"", "a,", "n[", "n]1[", "n[]", "n[b-c]", "n[5-3]", "n[1-2",
                            "n[1-2000000000]", "n[1-9999]x[1-9999]"}) {
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
