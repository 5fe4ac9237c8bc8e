#include "runtime/comm/bootstrap.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <span>
#include <string_view>

#include "planner/core/error.h"

namespace braid::comm {

namespace {

constexpr std::array kBackends = {BackendKind::in_process, BackendKind::mpi, BackendKind::nccl};

// The variables of a launcher. An empty name: it sets none.
struct Launcher {
  std::string_view name;
  std::string_view rank, size, local_rank;
  std::string_view address, port;
};
// From the outside in: torchrun may run in a Slurm job and sets its variables last. So may mpirun,
// which then is the one that counts ranks.
constexpr Launcher kTorchrun{"torchrun",   "RANK",        "WORLD_SIZE",
                             "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};
constexpr Launcher kMpirun{
    "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "", ""};
constexpr Launcher kSrun{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", ""};

std::string fix_of(const Launcher& launcher) {
  return fmt::format(
      "start with {}, or set {}, {} and {} together, or unset them all to run in one process",
      launcher.name, launcher.rank, launcher.size, launcher.local_rank);
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

int whole_number(const Environment& environment, std::string_view name, int least, int most,
                 const std::string& fix) {
  const std::optional<std::string> text = environment(std::string(name));
  if (!text) {
    throw Error({.what = fmt::format("{} is not set", name), .where = "environment", .fix = fix});
  }
  const std::optional<int> value = parse_int(*text);
  if (!value || *value < least || *value > most) {
    const std::string range = most == std::numeric_limits<int>::max()
                                  ? fmt::format("of at least {}", least)
                                  : fmt::format("from {} to {}", least, most);
    throw Error({.what = fmt::format("{} is \"{}\", not a whole number {}", name, *text, range),
                 .where = "environment",
                 .fix = fix});
  }
  return *value;
}

bool sets_any(const Environment& environment, const Launcher& launcher) {
  return environment(std::string(launcher.rank)) || environment(std::string(launcher.size));
}

void read_address(const Environment& environment, const Launcher& launcher, Launch& launch) {
  constexpr int kMostPort = 65535;
  // Every launcher's user may name the place where rank 0 listens.
  const auto address = environment("MASTER_ADDR");
  if (address && !address->empty()) {
    launch.address = *address;
  } else if (launcher.name == kTorchrun.name) {
    throw Error({.what = "MASTER_ADDR is not set",
                 .where = "environment",
                 .fix = "start with torchrun, or set it to the host of rank 0"});
  } else if (const auto nodes = environment("SLURM_NODELIST"); nodes && !nodes->empty()) {
    launch.address = slurm_hosts(*nodes).front();
  }
  if (environment("MASTER_PORT")) {
    launch.port = whole_number(environment, "MASTER_PORT", 1, kMostPort,
                               "set it to a free port of the host of rank 0");
  } else if (const auto job = environment("SLURM_JOB_ID")) {
    // Jobs that share a node must not meet; the same arithmetic on every rank needs no message.
    constexpr int kFirst = 20000, kPorts = 20000;
    if (const auto number = parse_int(*job)) launch.port = kFirst + *number % kPorts;
  }
}

Launch read(const Environment& environment, const Launcher& launcher) {
  const std::string fix = fix_of(launcher);
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  Launch launch;
  launch.launcher = launcher.name;
  launch.size = whole_number(environment, launcher.size, 1, kNoLimit, fix);
  launch.rank = whole_number(environment, launcher.rank, 0, kNoLimit, fix);
  launch.local_rank = whole_number(environment, launcher.local_rank, 0, kNoLimit, fix);
  if (launch.rank >= launch.size) {
    throw Error({.what = fmt::format("{} is {}, but {} says that there are {} ranks", launcher.rank,
                                     launch.rank, launcher.size, launch.size),
                 .where = "environment",
                 .fix = fix});
  }
  if (launch.local_rank > launch.rank) {
    throw Error({.what = fmt::format("{} is {}, more than the rank {} in {}", launcher.local_rank,
                                     launch.local_rank, launch.rank, launcher.rank),
                 .where = "environment",
                 .fix = fix});
  }
  read_address(environment, launcher, launch);
  return launch;
}

// Splits at commas that are outside of brackets.
std::vector<std::string_view> list_items(std::string_view list) {
  std::vector<std::string_view> items;
  std::size_t first = 0;
  int depth = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[') ++depth;
    if (list[i] == ']') --depth;
    if (list[i] != ',' || depth > 0) continue;
    items.push_back(list.substr(first, i - first));
    first = i + 1;
  }
  items.push_back(list.substr(first));
  return items;
}

[[noreturn]] void unreadable(std::string_view list) {
  throw Error({.what = fmt::format("cannot read the list of nodes \"{}\"", list),
               .where = "environment: SLURM_NODELIST",
               .fix = "set MASTER_ADDR to the host of rank 0"});
}

// 003-005 or 12: numbers keep their leading zeros.
void append_range(std::string_view range, std::string_view before, std::string_view after,
                  std::string_view list, std::vector<std::string>& out) {
  const std::size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == range.npos ? low : range.substr(dash + 1);
  const std::optional<int> first = parse_int(low), last = parse_int(high);
  if (!first || !last || *first < 0 || *last < *first) unreadable(list);
  for (int i = *first; i <= *last; ++i) {
    const std::string middle = fmt::format("{}{:0{}}", before, i, low.size());
    // What follows may hold brackets of its own.
    for (const std::string& host : slurm_hosts(middle + std::string(after))) out.push_back(host);
  }
}

}  // namespace

std::string name_of(BackendKind kind) {
  switch (kind) {
    case BackendKind::in_process:
      return "in_process";
    case BackendKind::mpi:
      return "mpi";
    case BackendKind::nccl:
      return "nccl";
  }
  return {};
}

BackendKind backend_of(const std::string& name) {
  for (const BackendKind kind : kBackends) {
    if (name_of(kind) == name) return kind;
  }
  throw Error({.what = fmt::format("no backend is called \"{}\"", name),
               .where = "backend",
               .fix = "choose in_process, mpi or nccl"});
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return {};
  return value;
}

std::vector<std::string> slurm_hosts(const std::string& list) {
  std::vector<std::string> hosts;
  for (const std::string_view item : list_items(list)) {
    const std::size_t open = item.find('['), close = item.find(']');
    if (open == item.npos && close == item.npos && !item.empty()) {
      hosts.emplace_back(item);
      continue;
    }
    if (open == item.npos || close == item.npos || close < open) unreadable(list);
    for (const std::string_view range : list_items(item.substr(open + 1, close - open - 1))) {
      append_range(range, item.substr(0, open), item.substr(close + 1), list, hosts);
    }
  }
  return hosts;
}

std::optional<Launch> detect_launch(const Environment& environment) {
  for (const Launcher& launcher : {kTorchrun, kMpirun}) {
    if (sets_any(environment, launcher)) return read(environment, launcher);
  }
  // A Slurm job sets the number of tasks for its shell too, where nothing was started with srun.
  if (environment(std::string(kSrun.rank))) return read(environment, kSrun);
  return {};
}

}  // namespace braid::comm
