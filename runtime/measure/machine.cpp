#include "runtime/measure/machine.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "runtime/measure/host.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/collectives.h"

namespace braid::measure {

namespace {

// What one rank knows of itself.
struct Site {
  std::string host;      // its name: tells nodes apart, and goes no further
  std::string bus = {};  // of its GPU; empty on a CPU
  std::string device;
  std::int64_t memory = 0;  // of the GPU, or of the host
  std::int64_t free = 0;
  bool fp8 = false;              // a GPU with products in fp8
  std::vector<Fact> facts = {};  // that may differ between ranks
};

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string whole_gib(std::int64_t bytes) {
  return fmt::format("{} GiB", (bytes + (std::int64_t{1} << 29)) >> 30);
}

Site find_site(c10::Device device) {
  const Host host = find_host();
  // Equal nodes differ by some pages that their kernels keep.
  constexpr std::int64_t kGrain = std::int64_t{1} << 28;
  const std::int64_t memory = std::max(host.memory.value() / kGrain, std::int64_t{1}) * kGrain;
  Site site{.host = host_name(), .device = host.cpu, .memory = memory, .free = memory};
  site.facts = {
      {"cpu", host.cpu},
      {"cores of a node", fmt::format("{} in {} package{}, {} NUMA node{}", host.cores,
                                      host.packages, host.packages == 1 ? "" : "s", host.numa_nodes,
                                      host.numa_nodes == 1 ? "" : "s")},
      {"threads of a rank", std::to_string(at::get_num_threads())},
  };
  if (host.last_cache > Bytes(0))
    site.facts.push_back({"last cache", format_bytes(host.last_cache)});
  const auto gpu = ops::device_facts(device);
  if (!gpu) return site;
  site.bus = gpu->bus;
  site.device = gpu->name;
  site.memory = gpu->memory;
  site.free = gpu->free;
  site.fp8 = ops::has_fp8(device);
  site.facts.push_back({"gpu", gpu->name});
  site.facts.push_back({"memory of a gpu", whole_gib(gpu->memory)});
  if (const auto gpus = find_gpus()) {
    site.facts.push_back({"gpu driver", gpus->driver});
    site.facts.push_back({"gpu link", gpus->link});
  }
  const auto share = comm::process_environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (share) site.facts.push_back({"share of a gpu", *share + "%"});
  return site;
}

std::string to_text(const Site& site) {
  Json json{{"host", site.host},      {"bus", site.bus},   {"device", site.device},
            {"memory", site.memory},  {"free", site.free}, {"fp8", site.fp8},
            {"facts", Json::object()}};
  for (const Fact& fact : site.facts) json["facts"][fact.name] = fact.value;
  // A name of a device may hold any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Site from_text(const std::string& text) {
  const Json json = parse_json(text, "what a rank says of itself");
  JsonObject object{JsonValue(json, "what a rank says of itself")};
  Site site{.host = object.string("host"),
            .bus = object.string("bus"),
            .device = object.string("device"),
            .memory = object.integer("memory"),
            .free = object.integer("free"),
            .fp8 = object.boolean_or("fp8", false)};
  for (const auto& [name, value] : JsonObject(object.at("facts")).entries())
    site.facts.push_back({name, value.string()});
  object.finish();
  return site;
}

// "8", or "8, 4" where nodes differ.
template <class Items, class Text>
std::string distinct(const Items& items, Text text) {
  std::vector<std::string> all;
  for (const auto& item : items) {
    std::string one = text(item);
    if (std::ranges::find(all, one) == all.end()) all.push_back(std::move(one));
  }
  return join(all, ", ");
}

// Runs of ranks on one host.
std::vector<NodeKind> nodes_of(const std::vector<Site>& sites) {
  std::vector<NodeKind> nodes;
  std::vector<std::string> hosts;
  for (const Site& site : sites) {
    if (hosts.empty() || hosts.back() != site.host) {
      if (std::ranges::find(hosts, site.host) != hosts.end())
        throw Error({.what = "ranks of one node do not follow each other",
                     .where = "the launcher's placement of ranks",
                     .fix = "fill node after node (mpirun --map-by slot, srun -m block)"});
      hosts.push_back(site.host);
      nodes.push_back({.nodes = 1,
                       .ranks = 0,
                       .device = site.device,
                       .memory = Bytes(site.memory),
                       .fp8 = site.fp8});
    }
    ++nodes.back().ranks;
  }
  return nodes;
}

std::vector<NodeKind> kinds_of(const std::vector<NodeKind>& nodes) {
  std::vector<NodeKind> kinds;
  for (const NodeKind& node : nodes) {
    NodeKind last = kinds.empty() ? NodeKind{} : kinds.back();
    last.nodes = 1;
    if (!kinds.empty() && last == node)
      ++kinds.back().nodes;
    else
      kinds.push_back(node);
  }
  return kinds;
}

int most_on_one_gpu(const std::vector<Site>& sites) {
  std::map<std::pair<std::string, std::string>, int> ranks;
  int most = 0;
  for (const Site& site : sites)
    if (!site.bus.empty()) most = std::max(most, ++ranks[{site.host, site.bus}]);
  return most;
}

}  // namespace

int Machine::kind_of(int rank) const {
  int kind = 0;
  for (int end = 0; kind < std::ssize(kinds) - 1; ++kind) {
    const NodeKind& of = kinds[static_cast<std::size_t>(kind)];
    end += of.nodes * of.ranks;
    if (rank < end) break;
  }
  return kind;
}

int Machine::num_nodes() const {
  int nodes = 0;
  for (const NodeKind& kind : kinds) nodes += kind.nodes;
  return nodes;
}

std::vector<std::string> gather_texts(const std::string& mine, comm::Group& world,
                                      c10::Device device) {
  if (world.size() == 1) return {mine};
  at::Tensor longest = at::empty({1}, at::kLong);
  *longest.data_ptr<std::int64_t>() = static_cast<std::int64_t>(mine.size());
  longest = longest.to(device);
  parallel::all_reduce(longest, world, "longest text", comm::Reduction::max);
  constexpr std::int64_t kWord = sizeof(std::int64_t);
  // One byte more than the longest: the rest is zeros, and no text holds one.
  const std::int64_t words = longest.item<std::int64_t>() / kWord + 1;
  at::Tensor text = at::zeros({words}, at::kLong);
  std::memcpy(text.data_ptr(), mine.data(), mine.size());
  const at::Tensor all = parallel::all_gather(text.to(device), world, "texts").to(at::kCPU);
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(world.size()));
  const auto* first = static_cast<const char*>(all.data_ptr());
  for (std::int64_t rank = 0; rank < world.size(); ++rank)
    texts.emplace_back(first + rank * words * kWord);
  return texts;
}

Machine find_machine(comm::Group& world, c10::Device device, comm::BackendKind backend) {
  std::vector<Site> sites;
  for (const std::string& text : gather_texts(to_text(find_site(device)), world, device))
    sites.push_back(from_text(text));
  std::vector<NodeKind> nodes = nodes_of(sites);
  Machine machine;
  machine.ranks_per_gpu = most_on_one_gpu(sites);
  machine.facts = {
      {"program", "braid " BRAID_VERSION},
      {"libtorch", TORCH_VERSION},
      {"backend", comm::name_of(backend)},
      {"ranks", std::to_string(world.size())},
      {"nodes", std::to_string(nodes.size())},
      {"ranks of a node",
       distinct(nodes, [](const NodeKind& node) { return std::to_string(node.ranks); })},
  };
  if (machine.ranks_per_gpu > 0)
    machine.facts.push_back({"ranks of a gpu", std::to_string(machine.ranks_per_gpu)});
  for (const Fact& fact : sites.front().facts)
    machine.facts.push_back({fact.name, distinct(sites, [&](const Site& site) {
                               const auto found =
                                   std::ranges::find(site.facts, fact.name, &Fact::name);
                               return found == site.facts.end() ? "none" : found->value;
                             })});
  std::int64_t free = sites.front().free;
  for (const Site& site : sites) free = std::min(free, site.free);
  int sharing = machine.ranks_per_gpu;
  if (sharing == 0) {
    // CPU ranks share the memory of their host.
    for (NodeKind& node : nodes) {
      sharing = std::max(sharing, node.ranks);
      node.memory = node.memory / node.ranks;
    }
  }
  machine.free = Bytes(free / sharing);
  machine.kinds = kinds_of(nodes);
  return machine;
}

std::vector<Fact> facts_of(comm::Group& world, c10::Device device, comm::BackendKind backend) {
  return find_machine(world, device, backend).facts;
}

void expect_limit_within(const Machine& machine, Bytes limit) {
  Bytes most;
  for (const NodeKind& kind : machine.kinds) most = std::max(most, kind.memory);
  if (limit <= most) return;
  throw Error({.what = fmt::format("a limit of {} is above the {} that a rank's device has here",
                                   format_bytes(limit), format_bytes(most)),
               .where = "--memory",
               .fix = fmt::format("choose at most {}B, or leave it out to use all", most.value())});
}

void expect_taken_here(const Profile& profile, const std::vector<Fact>& now,
                       const std::string& file) {
  if (profile.taken_on.empty()) return;
  const std::vector<std::string> lines = differences(profile.taken_on, now);
  if (lines.empty()) return;
  throw Error({.what = fmt::format("this profile does not hold here: {}", join(lines, "; ")),
               .where = fmt::format("{}: taken_on", file),
               .fix = "measure again here and as you will train, with 'braid profile hardware' and "
                      "'braid profile model'"});
}

}  // namespace braid::measure
