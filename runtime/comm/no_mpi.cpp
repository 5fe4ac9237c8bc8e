// Stands in for mpi.cpp where MPI is absent.

#include <cstdlib>

#include "runtime/comm/mpi.h"

namespace braid::comm {

bool mpi_available() { return false; }
std::string mpi_version() { return {}; }

std::unique_ptr<Group> mpi_world(std::chrono::milliseconds, std::int64_t) {
  throw Error({.what = "this build has no MPI",
               .where = "backend mpi",
               .fix = "install an MPI with its headers (libopenmpi-dev openmpi-bin) and configure "
                      "and build again, or use the backend in_process"});
}

void mpi_finalize() {}

void mpi_abort(int status) { std::_Exit(status); }

}  // namespace braid::comm
