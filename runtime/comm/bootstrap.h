#pragma once
// How a process learns its place in the world: from the environment of mpirun, srun or torchrun.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace braid::comm {

enum class BackendKind { in_process, mpi, nccl };
std::string name_of(BackendKind kind);
BackendKind backend_of(const std::string& name);  // throws Error

struct Launch {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the processes of this node: the device to use
  // Where rank 0 listens, for backends that bring no launcher's wires of their own.
  std::string address = "127.0.0.1";
  int port = 29500;
  std::string launcher;  // "mpirun", "srun", "torchrun"
  int local_size = 1;    // processes of this launch on this node
  // Identifies this launch, equal on all its ranks: prefix of its keys in a store that others may
  // reach too. A restart of torchrun's is a launch of its own. Empty where nothing identifies it.
  std::string run = {};
  bool pmi = false;           // srun offers PMI, by which processes of MPI find each other
  bool agent_serves = false;  // torchrun's agent listens at address:port, so that rank 0 need not
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

// Nothing where no launcher started this process, as in an sbatch script before its first srun.
// Throws Error where the environment is half set or contradicts itself.
std::optional<Launch> detect_launch(const Environment& environment = process_environment);

// Index of the GPU that a rank takes among the `visible` ones of its node. One visible GPU is the
// rank's own, whatever its local rank: srun --gpus-per-task and --gpu-bind hide all others. With
// `shared`, ranks beyond the number of GPUs begin again with the first. Throws Error where the rank
// has none.
int device_of(const Launch& launch, int visible, bool shared);

// CPU threads of one of `processes` on a node of `cores`; at least one.
int threads_of(int cores, int processes);

// Processes on each node of a Slurm list such as 8(x2),4: {8, 8, 4}. Nothing where it cannot be
// read.
std::optional<std::vector<int>> slurm_tasks(const std::string& list);

// The hosts of a Slurm list such as node[003-005,12],login1. Throws Error.
std::vector<std::string> slurm_hosts(const std::string& list);

}  // namespace braid::comm
