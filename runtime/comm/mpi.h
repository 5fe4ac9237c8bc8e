#pragma once
// Ranks as processes on CPUs, of one machine or many. Sums have the bits of in_process.

#include <chrono>

#include "runtime/comm/group.h"

namespace braid::comm {

bool mpi_available();       // in this build
std::string mpi_version();  // "Open MPI v4.1.4"; empty without MPI

// MPI counts in int: longer messages go in pieces.
inline constexpr std::int64_t kMpiPieceBytes = std::int64_t{1} << 30;

// The world of mpirun or srun. Once in a process, and then from one thread only.
std::unique_ptr<Group> mpi_world(std::chrono::milliseconds timeout,
                                 std::int64_t piece_bytes = kMpiPieceBytes);

// Delivers what was sent and ends MPI. To be called before the process ends.
void mpi_finalize();

// Ends the processes of all ranks: what to do about an exception, since others wait for this rank.
[[noreturn]] void mpi_abort(int status);

}  // namespace braid::comm
