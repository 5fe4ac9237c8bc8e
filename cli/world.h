#pragma once
// Where the ranks of a verb run: chosen from flags and launcher, then started.

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "cli/verbs.h"
#include "planner/explain/layout.h"
#include "planner/model/layer.h"
#include "runtime/comm/bootstrap.h"
#include "runtime/comm/group.h"

namespace braid::cli {

// Flags as they were typed.
struct WorldFlags {
  std::string backend, device, ranks, timeout = "300";
};
// `ranks` says what --ranks means to the verb.
void add_world_flags(const Options& option, WorldFlags& flags, const char* ranks);

struct Place {
  comm::BackendKind backend = comm::BackendKind::in_process;
  std::optional<comm::Launch> launch;  // none: nobody launched this process as one of several
  std::chrono::milliseconds timeout{0};
  int ranks = 1;

  bool first() const { return !launch || launch->rank == 0; }
};

// Whether this process is one of several, which may take their time each to open what they read.
inline bool starts_together(const Place& place) { return place.launch && place.launch->size > 1; }

// As many ranks as --ranks says, else as were launched, else one.
int asked_ranks(const WorldFlags& flags, const std::optional<comm::Launch>& launch);
// Throws Error where backend, device, launcher and number of ranks do not go together.
Place choose_place(const WorldFlags& flags, const std::optional<comm::Launch>& launch, int ranks);

// Calls `work` on every rank of the world, or on the one that this process is. May end the process.
// The exit status is the highest that a rank returns. SIGINT and SIGTERM only ask the work to end
// (cli/interrupt.h); measure::Stopped becomes a line of rank 0's and the signal's status.
using RankWork = std::function<int(comm::Group& world, c10::Device device)>;
int run_world(const Place& place, const RankWork& work);

// Calls `work` with what the launcher says. Where one process of several throws, all end.
using LaunchedWork = std::function<int(const std::optional<comm::Launch>& launch)>;
int launched(const LaunchedWork& work);

// Where ranks on CPUs are more than the cores of their machine, as a sentence that says what this
// does to the times of a run; otherwise nothing.
std::string sharing_remark(const Place& place);

// Throws Error if the device has no products in this precision; the same on equal devices.
void expect_precision(c10::Device device, Precision precision);

// mpirun gives its processes a terminal of its own, whatever it writes to itself.
RenderOptions look_of(const Place& place);

}  // namespace braid::cli
