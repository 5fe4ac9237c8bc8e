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
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

// Nothing where no launcher started this process. Throws Error where the environment is half set or
// contradicts itself.
std::optional<Launch> detect_launch(const Environment& environment = process_environment);

// The hosts of a Slurm list such as node[003-005,12],login1. Throws Error.
std::vector<std::string> slurm_hosts(const std::string& list);

}  // namespace braid::comm
