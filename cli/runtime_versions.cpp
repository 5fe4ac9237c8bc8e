#include <torch/headeronly/version.h>

#include "cli/version.h"
#include "runtime/comm/mpi.h"
#include "runtime/comm/nccl.h"
#include "runtime/ops/device.h"

namespace braid::cli {

std::vector<ComponentVersion> runtime_versions() {
  return {{"libtorch", TORCH_VERSION},
          {"CUDA", ops::cuda_version()},
          {"NCCL", comm::nccl_version()},
          {"MPI", comm::mpi_version()}};
}

}  // namespace braid::cli
