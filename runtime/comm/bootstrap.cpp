#include "runtime/comm/bootstrap.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>

#include "planner/core/error.h"

namespace braid::comm {

namespace {

constexpr std::array kBackends = {BackendKind::in_process, BackendKind::mpi, BackendKind::nccl};

// The variables of a launcher.
struct Launcher {
  std::string_view name;
  std::string_view rank, size, local_rank;
};
// From the outside in: torchrun may run in a Slurm job and sets its variables last. So may mpirun,
// which then is the one that counts ranks.
constexpr Launcher kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Launcher kMpirun{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Launcher kSrun{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};

// Ports that runs choose from: below the kernel's range for outgoing connections (from 32768 on).
constexpr std::uint64_t kFirstPort = 20000;
constexpr std::uint64_t kPorts = 12000;

constexpr std::size_t kMostNodes = 1 << 20;  // of a list: larger ones are taken for mistakes

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

std::optional<std::uint64_t> parse_id(const std::optional<std::string>& text) {
  std::uint64_t value = 0;
  if (!text) return {};
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

// The text of the first variable that is set and not empty.
std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (auto text = environment(name); text && !text->empty()) return *text;
  return {};
}

// Of a step that srun starts. The batch script, a shell of salloc and the step for processes that
// came by ssh have none, or one of the largest numbers of 32 bits.
std::optional<std::uint64_t> slurm_step(const Environment& environment) {
  constexpr std::uint64_t kFirstSpecial = 0xfffffff0;
  const auto step = parse_id(environment("SLURM_STEP_ID"));
  return step && *step < kFirstSpecial ? step : std::nullopt;
}

// FNV-1a: the same on every rank and machine, unlike std::hash.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Where rank 0 is if no variable says it: the first node of its step, or of mpirun's job. mpirun
// starts its daemons with srun, so that a step's list is theirs, without the node of rank 0.
std::string slurm_address(const Environment& environment, const Launcher& launcher) {
  const std::string nodes =
      launcher.name == kSrun.name
          ? first_of(environment, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"})
          : first_of(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  return nodes.empty() ? "" : slurm_hosts(nodes).front();
}

// A port that runs which share a node hardly have in common: the same arithmetic on every rank
// needs no message. Nothing where no variable identifies the run.
std::optional<int> usual_port(const Environment& environment, const Launcher& launcher,
                              const std::string& run) {
  const auto port = [](std::uint64_t number) {
    return static_cast<int>(kFirstPort + number % kPorts);
  };
  if (launcher.name == kMpirun.name && !run.empty()) return port(hash_of(run));
  constexpr std::uint64_t kStepStride = 7919;  // prime to kPorts: steps of near jobs differ
  if (const auto job = parse_id(environment("SLURM_JOB_ID")))
    return port(*job % kPorts + slurm_step(environment).value_or(0) % kPorts * kStepStride);
  return {};
}

std::string run_of(const Environment& environment, const Launcher& launcher) {
  if (launcher.name == kTorchrun.name) {
    const std::string id = first_of(environment, {"TORCHELASTIC_RUN_ID"});
    const std::string attempt = first_of(environment, {"TORCHELASTIC_RESTART_COUNT"});
    return id.empty() && attempt.empty() ? "" : fmt::format("torchrun {} {}", id, attempt);
  }
  if (launcher.name == kMpirun.name) {
    const std::string name = first_of(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
    return name.empty() ? "" : fmt::format("mpirun {}", name);
  }
  const std::string job = first_of(environment, {"SLURM_JOB_ID"});
  return job.empty() ? "" : fmt::format("srun {}.{}", job, slurm_step(environment).value_or(0));
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
  } else if (std::string host = slurm_address(environment, launcher); !host.empty()) {
    launch.address = std::move(host);
  }
  if (environment("MASTER_PORT")) {
    launch.port = whole_number(environment, "MASTER_PORT", 1, kMostPort,
                               "set it to a free port of the host of rank 0");
  } else {
    launch.port = usual_port(environment, launcher, launch.run).value_or(launch.port);
  }
}

// Of this launch on this node; all of them where no variable tells.
int local_size(const Environment& environment, const Launcher& launcher, const Launch& launch) {
  const auto within = [&](std::optional<int> count) {
    return count && *count > launch.local_rank && *count <= launch.size;
  };
  std::optional<int> count;
  if (launcher.name == kSrun.name) {
    const auto tasks =
        slurm_tasks(first_of(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
    const auto node = parse_id(environment("SLURM_NODEID"));
    if (tasks && node && *node < tasks->size()) count = (*tasks)[*node];
  } else {
    count = parse_int(first_of(
        environment,
        {launcher.name == kTorchrun.name ? "LOCAL_WORLD_SIZE" : "OMPI_COMM_WORLD_LOCAL_SIZE"}));
  }
  return within(count) ? *count : launch.size;
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
  launch.local_size = local_size(environment, launcher, launch);
  launch.run = run_of(environment, launcher);
  read_address(environment, launcher, launch);
  launch.pmi =
      launcher.name == kSrun.name && !first_of(environment, {"PMIX_RANK", "PMI_RANK"}).empty();
  launch.agent_serves =
      launcher.name == kTorchrun.name && environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
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
    if (out.size() > kMostNodes) unreadable(list);
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

int device_of(const Launch& launch, int visible, bool shared) {
  if (visible == 0) {
    throw Error({.what = "no GPU is visible",
                 .where = "backend nccl",
                 .fix = "see nvidia-smi and CUDA_VISIBLE_DEVICES, or use the backend mpi"});
  }
  if (visible == 1 || shared) return launch.local_rank % visible;
  if (launch.local_rank >= visible) {
    throw Error({.what = fmt::format("local rank {} has no GPU: {} are visible", launch.local_rank,
                                     visible),
                 .where = "backend nccl",
                 .fix = fmt::format("start at most {} ranks on this node", visible)});
  }
  return launch.local_rank;
}

int threads_of(int cores, int processes) { return std::max(1, cores / std::max(1, processes)); }

std::optional<std::vector<int>> slurm_tasks(const std::string& list) {
  std::vector<int> tasks;
  for (const std::string_view item : list_items(list)) {
    const std::size_t open = item.find("(x");
    const auto count = parse_int(item.substr(0, open));
    std::optional<int> nodes = 1;
    if (open != item.npos) {
      if (!item.ends_with(')')) return {};
      nodes = parse_int(item.substr(open + 2, item.size() - open - 3));
    }
    if (!count || *count < 1 || !nodes || *nodes < 1 ||
        *nodes > static_cast<int>(kMostNodes - tasks.size()))
      return {};
    tasks.insert(tasks.end(), static_cast<std::size_t>(*nodes), *count);
  }
  return tasks;
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
  // A job sets number of tasks and rank for its batch script too: only steps are of srun.
  if (environment(std::string(kSrun.rank)) && slurm_step(environment))
    return read(environment, kSrun);
  return {};
}

}  // namespace braid::comm
