// The ranks of `braid train` at work, on each backend, and the dry run.

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cli/common.h"
#include "cli/train.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/explain/summary.h"
#include "runtime/comm/in_process.h"
#include "runtime/comm/mpi.h"
#include "runtime/comm/nccl.h"
#include "runtime/train/dry_run.h"

namespace braid::cli {
namespace {

using comm::BackendKind;

// So that ranks × threads are about the cores. OMP_NUM_THREADS, where it is set, has been obeyed.
void share_cores(int ranks_here) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  at::set_num_threads(std::max(1, cores / ranks_here));
}

int processes_here(const comm::Launch& launch) {
  const auto local = comm::process_environment("OMPI_COMM_WORLD_LOCAL_SIZE");
  const int count = local ? std::atoi(local->c_str()) : 0;
  return count > 0 ? count : launch.size;
}

std::string precision_of(const Plan& plan, train::RunPrecision precision) {
  switch (precision) {
    case train::RunPrecision::plan:
      return name_of(plan.precision);
    case train::RunPrecision::fp64:
      return "fp64";
    case train::RunPrecision::fp32:
      return "fp32";
    case train::RunPrecision::bf16:
      return "bf16";
  }
  return {};
}

void print_headline(const Plan& plan, const Place& place, const train::TrainOptions& options) {
  Table table({Align::left, Align::left});
  table.add({"model", fmt::format("{} · {} parameters · sequence {}", printable(plan.model.name),
                                  format_count(static_cast<double>(parameters(plan.model))),
                                  plan.model.sequence)});
  table.add({"plan", shape_line(plan)});
  const int ranks = plan.cluster.num_devices();
  table.add({"ranks", fmt::format("{} · {} · {} on {}", ranks, comm::name_of(place.backend),
                                  precision_of(plan, options.precision),
                                  options.device.is_cuda() ? "GPUs" : "CPUs")});
  table.add({"data", printable(options.data->describe())});
  print(table.text() + "\n");
}

void write_json(const TrainFlags& flags, const Json& json) {
  if (!flags.json.empty()) write_text(flags.json, json.dump(2) + "\n");
}

// mpirun gives its processes a terminal of its own, whatever it writes to itself.
RenderOptions look_of(const Place& place) {
  return place.launch ? RenderOptions{} : terminal_options();
}

void train_as(comm::Group& world, const Plan& plan, const TrainFlags& flags, const Place& place,
              train::TrainOptions options) {
  options.on_start = [&] { print_headline(plan, place, options); };
  const train::TrainReport report = train::train(plan, world, options);
  if (world.rank() > 0) return;
  write_json(flags, report_json(plan, report));
  print("\n" + report_text(plan, report, look_of(place)));
}

// The way out after MPI and CUDA, whose libraries fail in destructors of static objects.
[[noreturn]] void leave() {
  std::fflush(nullptr);
  std::_Exit(kOk);
}

}  // namespace

int run_ranks(const Plan& plan, const TrainFlags& flags, const Place& place,
              train::TrainOptions options) {
  options.progress_to = stdout;
  options.progress.terminal = !place.launch && is_terminal(stdout);
  switch (place.backend) {
    case BackendKind::in_process: {
      const int ranks = plan.cluster.num_devices();
      share_cores(ranks);
      comm::run_in_process(
          ranks, [&](comm::Group& world) { train_as(world, plan, flags, place, options); },
          place.timeout);
      return kOk;
    }
    case BackendKind::mpi: {
      share_cores(processes_here(*place.launch));
      {
        const auto world = comm::mpi_world(place.timeout);
        train_as(*world, plan, flags, place, options);
      }
      comm::mpi_finalize();
      leave();
    }
    case BackendKind::nccl: {
      const comm::Launch launch = place.launch.value_or(comm::Launch{});
      options.device = at::kCUDA;  // the one nccl_world makes current
      const auto world = comm::nccl_world(launch, place.timeout);
      train_as(*world, plan, flags, place, options);
      world->barrier("the end");
      leave();
    }
  }
  internal_failure("unknown backend", std::source_location::current());
}

int run_dry(const Plan& plan, const TrainFlags& flags, const train::TrainOptions& options) {
  // Ranks of a stage differ at most by what does not divide: few of them are all played, of many
  // the first of each stage.
  constexpr int kFew = 16;
  const int devices = plan.cluster.num_devices();
  const Mesh mesh = plan.mesh();
  std::vector<train::HeldMemory> ranks(static_cast<std::size_t>(devices));
  std::vector<bool> played(static_cast<std::size_t>(plan.shape.stages));
  for (int rank = 0; rank < devices; ++rank) {
    const auto stage = static_cast<std::size_t>(stage_of(rank, mesh));
    if (devices > kFew && played[stage]) continue;
    played[stage] = true;
    ranks[static_cast<std::size_t>(rank)] =
        train::dry_run(plan, rank, {.precision = options.precision, .dropout = options.dropout});
  }
  const std::vector<train::HeldMemory> stages = train::largest_of_stages(ranks, plan);
  write_json(flags,
             {{"format", "braid.dry_run"}, {"version", 1}, {"stages", memory_json(plan, stages)}});
  print(fmt::format("  {} · {} devices\n\n", shape_line(plan), devices) +
        memory_text(plan, stages, terminal_options()));
  return kOk;
}

}  // namespace braid::cli
