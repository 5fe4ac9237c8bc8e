#include "cli/world.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/verb.h"
#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/comm/in_process.h"
#include "runtime/comm/mpi.h"
#include "runtime/comm/nccl.h"
#include "runtime/measure/stopped.h"
#include "runtime/ops/device.h"
#include "runtime/ops/linear.h"

namespace braid::cli {
namespace {

using comm::BackendKind;

constexpr const char* kMpirun = "mpirun";
constexpr const char* kTorchrun = "torchrun";
constexpr const char* kSrun = "srun";

BackendKind usual_backend(const std::optional<comm::Launch>& launch, bool cuda) {
  if (cuda) return BackendKind::nccl;
  if (!launch) return BackendKind::in_process;
  if (launch->launcher == kMpirun) return BackendKind::mpi;
  if (comm::nccl_available()) return BackendKind::nccl;
  // One task of srun's needs nobody, and finds no MPI without its --mpi flag.
  const bool alone = launch->size == 1 && !launch->pmi;
  return launch->launcher == kTorchrun || alone ? BackendKind::in_process : BackendKind::mpi;
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
  if (backend == BackendKind::mpi && launch && launch->launcher == kSrun && !launch->pmi)
    fail("srun gives no connections of MPI: it was started without PMI",
         "start with srun --mpi=pmix, or with mpirun");
  if (backend == BackendKind::mpi && !launch)
    fail("no launcher started this process",
         fmt::format("start with 'mpirun -n {} braid …' or srun, or choose the backend "
                     "in_process",
                     devices));
  if (backend == BackendKind::nccl && !launch && devices > 1)
    fail("no launcher started this process",
         fmt::format("start with 'torchrun --no-python --nproc-per-node N braid …', srun or "
                     "mpirun, {} processes in all",
                     devices));
}

// So that ranks × threads are about the cores. OMP_NUM_THREADS, where it is set, has been obeyed.
void share_cores(int ranks_here) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  at::set_num_threads(comm::threads_of(cores, ranks_here));
}

// Every large tensor would be fresh from the kernel and go back to it at once, which costs more
// than many an operator on it.
void keep_freed_memory() {
  constexpr int kNever = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
}

// Streams that share a queue of the device wait for each other, and collectives of two groups that
// do so in different order on two ranks would wait for ever. Ranks that share a GPU under MPS share
// its queues too and must say themselves how many each may have.
void use_many_queues() {
  // And NCCL is to begin collectives of different groups in the order in which they were called.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  if (std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == nullptr)
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

// The way out after MPI and CUDA, whose libraries fail in destructors of static objects.
[[noreturn]] void leave(int status) {
  std::fflush(nullptr);
  std::_Exit(status);
}

// One process of several must not just go: the others wait for it.
[[noreturn]] void end_all_ranks(int rank) {
  int status = kInternal;
  std::string text;
  try {
    throw;
  } catch (const Error& error) {
    const Mistake& mistake = error.mistake();
    text = fmt::format("error: {}\n  where: {}\n  fix:   {}", mistake.what, mistake.where,
                       mistake.fix);
    status = kBadInput;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) {
      const Mistake mistake = out_of_memory(error);
      text = fmt::format("error: {}\n  where: {}\n  fix:   {}", mistake.what, mistake.where,
                         mistake.fix);
      status = kInfeasible;
    } else {
      text = fmt::format("internal error: {}; please report it", error.what());
    }
  }
  // In one piece: ranks write at the same time.
  std::fputs(fmt::format("braid: rank {}: {}\n", rank, text).c_str(), stderr);
  comm::mpi_abort(status);
}

int run_rank(const RankWork& work, comm::Group& world, c10::Device device) {
  try {
    return work(world, device);
  } catch (const measure::Stopped& stopped) {
    const std::string kept = stopped.what();
    if (world.rank() == 0)
      note(fmt::format("stopped by {}{}{}", signal_name(stopped.signal()), kept.empty() ? "" : ": ",
                       printable(kept)));
    return signal_status(stopped.signal());
  }
}

}  // namespace

void add_world_flags(const Options& option, WorldFlags& flags, const char* ranks) {
  option("--backend", flags.backend, "NAME",
         "in_process, mpi or nccl; otherwise what the launcher calls for");
  option("--device", flags.device, "NAME", "cpu or cuda; otherwise the backend's");
  option("--ranks", flags.ranks, "N", ranks);
  option("--timeout", flags.timeout, "SECONDS", "for a rank that stays away (default 300)");
}

int asked_ranks(const WorldFlags& flags, const std::optional<comm::Launch>& launch) {
  if (const auto ranks = read_count(flags.ranks, "--ranks", limits::kRanks))
    return static_cast<int>(*ranks);
  return launch ? launch->size : 1;
}

Place choose_place(const WorldFlags& flags, const std::optional<comm::Launch>& launch, int ranks) {
  expect_ranks(flags.ranks, ranks);
  if (!flags.device.empty()) read_choice(flags.device, "--device", {"cpu", "cuda"});
  Place place;
  place.ranks = ranks;
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
  expect_launch(launch, place.backend, ranks);
  return place;
}

int run_world(const Place& place, const RankWork& work) {
  const Interrupt interrupt(
      place.first() ? "braid: ending after what is under way; a second Ctrl-C ends at once\n"
                    : nullptr);
  switch (place.backend) {
    case BackendKind::in_process: {
      share_cores(place.ranks);
      keep_freed_memory();
      std::vector<int> statuses(static_cast<std::size_t>(place.ranks));
      comm::run_in_process(
          place.ranks,
          [&](comm::Group& world) {
            statuses[static_cast<std::size_t>(world.rank())] = run_rank(work, world, c10::kCPU);
          },
          place.timeout);
      return std::ranges::max(statuses);
    }
    case BackendKind::mpi: {
      share_cores(place.launch->local_size);
      keep_freed_memory();
      int status = kOk;
      {
        const auto world = comm::mpi_world(place.timeout);
        status = run_rank(work, *world, c10::kCPU);
      }
      comm::mpi_finalize();
      leave(status);
    }
    case BackendKind::nccl: {
      use_many_queues();
      if (comm::ranks_share_gpus()) ops::share_processors();
      const comm::Launch launch = place.launch.value_or(comm::Launch{});
      const auto world = comm::nccl_world(launch, place.timeout);
      const int status = run_rank(work, *world, c10::kCUDA);  // the one nccl_world makes current
      world->barrier("the end");
      leave(status);
    }
  }
  internal_failure("unknown backend", std::source_location::current());
}

int launched(const LaunchedWork& work) {
  const std::optional<comm::Launch> launch = comm::detect_launch();
  if (!launch) return work(launch);
  try {
    return work(launch);
  } catch (...) {
    end_all_ranks(launch->rank);
  }
}

std::string sharing_remark(const Place& place) {
  if (place.backend == BackendKind::nccl) return "";
  const int ranks =
      place.backend == BackendKind::in_process ? place.ranks : place.launch->local_size;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (ranks <= cores) return "";
  return fmt::format(
      "  {} ranks take turns on {} core{}: while one waits another\n"
      "  computes, so that compute is measured short and waiting\n"
      "  long. Compare the time of the whole step.\n",
      ranks, cores, cores == 1 ? "" : "s");
}

void expect_precision(c10::Device device, Precision precision) {
  if (precision != Precision::fp8 || ops::has_fp8(device)) return;
  throw Error({.what = fmt::format("this GPU (capability {:.1f}) has no products in fp8",
                                   ops::compute_capability(device) / 10.0),
               .where = "--precision",
               .fix = fmt::format("choose bf16, or a GPU of capability {:.1f} or more (H100, H200, "
                                  "RTX 4090)",
                                  ops::kFirstWithFp8 / 10.0)});
}

RenderOptions look_of(const Place& place) {
  return place.launch ? RenderOptions{} : terminal_options();
}

}  // namespace braid::cli
