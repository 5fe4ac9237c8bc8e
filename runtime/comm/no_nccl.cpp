// Stands in for nccl.cpp where CUDA or NCCL is absent.

#include "runtime/comm/nccl.h"

namespace braid::comm {

bool nccl_available() { return false; }
std::string nccl_version() { return {}; }
bool ranks_share_gpus() { return false; }

std::unique_ptr<Group> nccl_world(const Launch&, std::chrono::milliseconds) {
  throw Error({.what = "this build has no CUDA",
               .where = "backend nccl",
               .fix = "configure and build again where a torch with CUDA and the headers of CUDA "
                      "and NCCL are found, or use the backend mpi or in_process"});
}

}  // namespace braid::comm
