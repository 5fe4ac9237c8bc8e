// Where the ranks of `braid train` run, and on what data.

#include <fmt/core.h>

#include "cli/common.h"
#include "cli/train.h"
#include "planner/core/error.h"
#include "runtime/comm/mpi.h"
#include "runtime/comm/nccl.h"

namespace braid::cli {
namespace {

using comm::BackendKind;

constexpr const char* kMpirun = "mpirun";
constexpr const char* kTorchrun = "torchrun";

BackendKind usual_backend(const std::optional<comm::Launch>& launch, bool cuda) {
  if (cuda) return BackendKind::nccl;
  if (!launch) return BackendKind::in_process;
  if (launch->launcher == kMpirun) return BackendKind::mpi;
  if (comm::nccl_available()) return BackendKind::nccl;
  return launch->launcher == kTorchrun ? BackendKind::in_process : BackendKind::mpi;
}

void expect_ranks(const std::string& flag, int devices) {
  const auto ranks = read_count(flag, "--ranks");
  if (!ranks || *ranks == devices) return;
  throw Error({.what = fmt::format("{} ranks for a plan of {} devices", *ranks, devices),
               .where = "--ranks",
               .fix = fmt::format("leave --ranks out to start {}, or plan again with --devices {}",
                                  devices, *ranks)});
}

void expect_device(const std::string& name, BackendKind backend) {
  const bool cuda = backend == BackendKind::nccl;
  if (name.empty() || (name == "cuda") == cuda) return;
  throw Error({.what = fmt::format("the backend {} works on {}", comm::name_of(backend),
                                   cuda ? "GPUs, not on CPUs" : "CPUs, not on GPUs"),
               .where = fmt::format("--device {}", name),
               .fix = fmt::format("leave --device out, or choose --backend {}",
                                  cuda ? "in_process or mpi" : "nccl")});
}

void expect_launch(const std::optional<comm::Launch>& launch, BackendKind backend, int devices) {
  const std::string name = comm::name_of(backend);
  const auto fail = [&](std::string what, std::string fix) {
    throw Error({.what = std::move(what),
                 .where = fmt::format("--backend {}", name),
                 .fix = std::move(fix)});
  };
  const bool several = launch && launch->size > 1;
  if (backend == BackendKind::in_process && several)
    fail(fmt::format("{} started {} processes, and each of them would run all ranks",
                     launch->launcher, launch->size),
         "start braid without a launcher, or choose the backend mpi or nccl");
  if (backend == BackendKind::mpi && launch && launch->launcher == kTorchrun)
    fail("torchrun gives no connections of MPI", fmt::format("start with mpirun -n {}", devices));
  if (backend == BackendKind::mpi && !launch)
    fail("no launcher started this process",
         fmt::format("start with 'mpirun -n {} braid train …' or srun, or choose the backend "
                     "in_process",
                     devices));
  if (backend == BackendKind::nccl && !launch && devices > 1)
    fail("no launcher started this process",
         fmt::format("start with 'torchrun --no-python --nproc-per-node N braid train …', srun or "
                     "mpirun, {} processes in all",
                     devices));
}

std::string after(const std::string& text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : "";
}

}  // namespace

Place choose_place(const TrainFlags& flags, const std::optional<comm::Launch>& launch,
                   int devices) {
  expect_ranks(flags.ranks, devices);
  if (!flags.device.empty()) read_choice(flags.device, "--device", {"cpu", "cuda"});
  Place place;
  place.launch = launch;
  place.timeout = std::chrono::seconds(*read_count(flags.timeout, "--timeout", {1, 1 << 20}));
  place.backend = flags.backend.empty()
                      ? usual_backend(launch, flags.device == "cuda")
                      : static_cast<BackendKind>(read_choice(
                            flags.backend, "--backend",
                            {comm::name_of(BackendKind::in_process),
                             comm::name_of(BackendKind::mpi), comm::name_of(BackendKind::nccl)}));
  // Their stand-ins throw what says why they are absent.
  if (place.backend == BackendKind::mpi && !comm::mpi_available()) comm::mpi_world(place.timeout);
  if (place.backend == BackendKind::nccl && !comm::nccl_available())
    comm::nccl_world({}, place.timeout);
  expect_device(flags.device, place.backend);
  expect_launch(launch, place.backend, devices);
  return place;
}

std::shared_ptr<const train::Dataset> open_data(const std::string& choice, const Plan& plan,
                                                std::uint64_t seed) {
  if (choice == "synthetic") return train::synthetic(plan.model.types.front().shape.vocab, seed);
  if (const std::string file = after(choice, "text:"); !file.empty())
    return train::text_file(file, plan.model.sequence);
  if (const std::string file = after(choice, "megatron:"); !file.empty())
    return train::megatron(file, plan.model.sequence);
  throw Error({.what = fmt::format("'{}' names no data", choice),
               .where = "--data",
               .fix = "choose synthetic, text:FILE or megatron:PREFIX"});
}

}  // namespace braid::cli
