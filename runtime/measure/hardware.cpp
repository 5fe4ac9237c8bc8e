#include "runtime/measure/hardware.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/measure/hardware_parts.h"
#include "runtime/measure/overlap.h"
#include "runtime/ops/device.h"

namespace braid::measure {

namespace {

// Device memory that is gone before any tensor, for each rank on the GPU. CPU ranks have no context
// and no buffers of communicators, which are assumed where nothing is said.
std::optional<Bytes> measure_context(Bench& bench, const Machine& machine) {
  if (machine.ranks_per_gpu == 0) return Bytes(0);
  const auto bytes = bench.run("context", [&] {
    ops::release_cached(bench.device());
    bench.world().barrier("all contexts are there");
    const auto facts = ops::device_facts(bench.device());
    bench.world().barrier("all have looked");
    const std::int64_t used = facts ? facts->memory - facts->free : 0;
    return std::vector<double>{static_cast<double>(used) / machine.ranks_per_gpu};
  });
  if (!bytes) return std::nullopt;
  return Bytes(static_cast<std::int64_t>(bytes->front()));
}

Link link_of(const Profile& profile, int distance, double memory_bandwidth) {
  const auto line = message_line(profile, Collective::point_to_point, {2, distance});
  // A lone device has no link: the planner asks for one, and never uses it.
  if (!line || !(line->slope > 0)) return {BytesPerSecond(memory_bandwidth), Seconds(0)};
  return {BytesPerSecond(1 / line->slope), Seconds(std::max(0.0, line->offset))};
}

std::string device_name(const Machine& machine, std::size_t kind) {
  // Devices of one name may differ in memory or in how many share it.
  std::string name = machine.kinds[kind].device;
  for (std::size_t i = 0; i < kind; ++i)
    if (machine.kinds[i].device == machine.kinds[kind].device)
      name = fmt::format("{} ({})", machine.kinds[kind].device, kind + 1);
  return name;
}

std::optional<Cluster> cluster_of(const Machine& machine, const HardwareOptions& options,
                                  const DeviceRates& rates, const Profile& profile,
                                  c10::Device device) {
  if (rates.memory.empty() || (rates.fp32.empty() && rates.bf16.empty())) return std::nullopt;
  // Where a limit left out one precision the other stands for it.
  const std::vector<double>& fp32 = rates.fp32.empty() ? rates.bf16 : rates.fp32;
  const std::vector<double>& bf16 = rates.bf16.empty() ? rates.fp32 : rates.bf16;
  const double slowest_memory = std::ranges::min(rates.memory);
  const Link inside = link_of(profile, 1, slowest_memory);
  Cluster cluster;
  int width = 0;  // of the first node: so far apart are ranks of different nodes
  int devices = 0;
  for (std::size_t i = 0; i < machine.kinds.size(); ++i) {
    const NodeKind& kind = machine.kinds[i];
    if (width == 0) width = kind.ranks;
    devices += kind.nodes * kind.ranks;
    cluster.device_types.push_back(
        {.name = device_name(machine, i),
         .peak_bf16 = FlopsPerSecond(bf16[i]),
         .peak_fp32 = FlopsPerSecond(fp32[i]),
         .memory = options.memory > Bytes(0) ? options.memory : kind.memory,
         .memory_bandwidth = BytesPerSecond(rates.memory[i]),
         .kind = device.is_cuda() ? DeviceKind::gpu : DeviceKind::cpu});
    // Not measured: every GPU that has fp8 has it at twice the rate of bf16.
    if (kind.fp8) cluster.device_types.back().peak_fp8 = FlopsPerSecond(2 * bf16[i]);
    cluster.groups.push_back({.count = kind.nodes,
                              .device_type = static_cast<int>(i),
                              .devices = kind.ranks,
                              .inside = inside});
  }
  cluster.name = fmt::format("{} x {}", devices, cluster.device_types.front().name);
  cluster.between = machine.num_nodes() > 1 ? link_of(profile, width, slowest_memory) : inside;
  return cluster;
}

}  // namespace

Cluster unmeasured_cluster(const Machine& machine, Bytes memory) {
  constexpr FlopsPerSecond kPeak{1e12};
  constexpr BytesPerSecond kRate{1e10};
  const Link link{kRate, Seconds(1e-5)};
  Cluster cluster;
  cluster.name = "this machine";
  cluster.between = link;
  for (std::size_t i = 0; i < machine.kinds.size(); ++i) {
    const NodeKind& kind = machine.kinds[i];
    cluster.device_types.push_back({.name = device_name(machine, i),
                                    .peak_bf16 = kPeak,
                                    .peak_fp32 = kPeak,
                                    .memory = memory > Bytes(0) ? memory : kind.memory,
                                    .memory_bandwidth = kRate,
                                    .kind = DeviceKind::cpu});  // without a GPU's context
    cluster.groups.push_back({.count = kind.nodes,
                              .device_type = static_cast<int>(i),
                              .devices = kind.ranks,
                              .inside = link});
  }
  return cluster;
}

Profile measure_hardware(Bench& bench, const HardwareOptions& options) {
  const Machine machine = find_machine(bench.world(), bench.device(), options.backend);
  expect_limit_within(machine, options.memory);
  const HardwareTask task{bench, machine, options,
                          options.room > Bytes(0) ? options.room : machine.free / 8};
  const OverlapTask beside{.bench = bench,
                           .room = task.room,
                           .largest_message = options.largest_message,
                           .values = task.type_of(options.precision),
                           .sums = task.type_of(options.gradient_precision)};
  bench.expect((machine.ranks_per_gpu > 0 ? 1 : 0) + num_device_measurements() +
               num_collective_measurements(task) + num_meeting_measurements(task) +
               num_overlap_measurements(beside));
  Profile profile;
  profile.source = "braid profile hardware";
  profile.precision = options.precision;
  profile.gradient_precision = options.gradient_precision;
  profile.taken_on = machine.facts;
  profile.context = measure_context(bench, machine);
  const DeviceRates rates = measure_devices(task, profile);
  measure_collectives(task, profile);
  measure_meetings(task, profile);
  measure_overlaps(beside, profile);
  profile.cluster = cluster_of(machine, options, rates, profile, bench.device());
  profile.name =
      profile.cluster ? profile.cluster->name : fmt::format("{} ranks", bench.world().size());
  profile.noise = bench.noise();
  return profile;
}

}  // namespace braid::measure
