#include "planner/cluster/cluster.h"

#include <fmt/core.h>

#include <algorithm>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"

namespace braid {

std::string name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::gpu:
      return "gpu";
    case DeviceKind::cpu:
      return "cpu";
  }
  return {};
}

int Cluster::num_nodes() const {
  int nodes = 0;
  for (const NodeGroup& group : groups) nodes += group.count;
  return nodes;
}

int Cluster::num_devices() const {
  int devices = 0;
  for (const NodeGroup& group : groups) devices += group.count * group.devices;
  return devices;
}

int Cluster::node_width() const {
  int width = groups.front().devices;
  for (const NodeGroup& group : groups) width = std::min(width, group.devices);
  return width;
}

bool Cluster::uniform() const {
  const NodeGroup& first = groups.front();
  return std::ranges::all_of(groups, [&](const NodeGroup& g) {
    return g.device_type == first.device_type && g.devices == first.devices &&
           g.inside.bandwidth == first.inside.bandwidth && g.inside.latency == first.inside.latency;
  });
}

Bytes largest_memory(const Cluster& cluster) {
  Bytes most;
  for (const NodeGroup& group : cluster.groups)
    most = std::max(most, cluster.device_types[static_cast<std::size_t>(group.device_type)].memory);
  return most;
}

void expect_limit_within(const Cluster& cluster, Bytes limit, const std::string& where) {
  const Bytes most = largest_memory(cluster);
  if (limit <= most) return;
  throw Error({.what = fmt::format("a limit of {} is above the {} that a device of '{}' has",
                                   format_bytes(limit), format_bytes(most), cluster.name),
               .where = where,
               .fix = fmt::format(
                   "choose at most {}B, or leave it out to use all; where devices have more, "
                   "the cluster file says so",
                   most.value())});
}

void expect_precision(const Cluster& cluster, Precision precision, const std::string& where) {
  for (const NodeGroup& group : cluster.groups) {
    const DeviceType& device = cluster.device_types[static_cast<std::size_t>(group.device_type)];
    if (device.computes(precision)) continue;
    throw Error({.what = fmt::format("'{}' has no products in {}", device.name, name_of(precision)),
                 .where = where,
                 .fix = "choose bf16, or give the device type a peak.fp8 if it has them (NVIDIA: "
                        "from capability 8.9 on)"});
  }
}

Cluster shrink(const Cluster& cluster, int devices) {
  const auto fail = [&](std::string fix) {
    throw Error({.what = fmt::format("cannot take {} of the {} devices of '{}'", devices,
                                     cluster.num_devices(), cluster.name),
                 .where = "--devices",
                 .fix = std::move(fix)});
  };
  if (devices < 1 || devices > cluster.num_devices())
    fail(fmt::format("choose from 1 to {}", cluster.num_devices()));
  Cluster smaller = cluster;
  smaller.groups.clear();
  int left = devices;
  for (const NodeGroup& group : cluster.groups) {
    if (left == 0) break;
    NodeGroup part = group;
    if (left < group.devices) {
      if (!smaller.groups.empty()) fail("choose a number that fills whole nodes");
      part.count = 1;
      part.devices = left;
    } else {
      part.count = std::min(group.count, left / group.devices);
      if (part.count < group.count && left % group.devices != 0)
        fail(fmt::format("choose a multiple of {} (whole nodes)", group.devices));
    }
    left -= part.count * part.devices;
    smaller.groups.push_back(part);
  }
  if (devices != cluster.num_devices())
    smaller.name = fmt::format("{} ({} devices)", cluster.name, devices);
  return smaller;
}

namespace {

const std::vector<std::string> kDeviceKinds = {name_of(DeviceKind::gpu), name_of(DeviceKind::cpu)};

// A quantity may stand as a number in base units or as text with a unit.
template <class Parse>
auto quantity(const JsonValue& value, Parse parse) {
  if (value.raw().is_string()) return parse(value.string(), value.path());
  return parse(fmt::format("{}", value.number(0)), value.path());
}

template <class Quantity>
Quantity positive(Quantity q, const JsonValue& value) {
  if (!(q > Quantity()))
    value.fail("this must be more than zero", "write the device's real figure");
  return q;
}

template <class Quantity>
Quantity rate(Quantity q, const RealLimit& limit, const JsonValue& value) {
  positive(q, value);
  if (q < Quantity(limit.low) || q > Quantity(limit.high))
    value.fail(fmt::format("{:g} a second is out of range: {:g} to {:g}", q.value(), limit.low,
                           limit.high),
               "write the device's real figure");
  return q;
}

Bytes read_memory(const JsonValue& value) {
  const Bytes size = positive(quantity(value, parse_bytes), value);
  if (size.value() > limits::kMemory.high)
    value.fail(
        fmt::format("{} bytes are out of range: up to {}", size.value(), limits::kMemory.high),
        "write the device's real figure");
  return size;
}

Link read_link(JsonObject object) {
  const JsonValue bandwidth = object.at("bandwidth");
  const JsonValue latency = object.at("latency");
  Link link{rate(quantity(bandwidth, parse_bandwidth), limits::kBandwidth, bandwidth),
            quantity(latency, parse_seconds)};
  if (link.latency > Seconds(limits::kLatency.high))
    latency.fail(fmt::format("{:g} s is out of range: up to {:g}", link.latency.value(),
                             limits::kLatency.high),
                 "write the link's real figure");
  object.finish();
  return link;
}

DeviceType read_device(const std::string& name, JsonObject object) {
  const JsonValue memory = object.at("memory");
  const JsonValue memory_bandwidth = object.at("memory_bandwidth");
  JsonObject peak = object.object("peak");
  const JsonValue bf16 = peak.at("bf16");
  const JsonValue fp32 = peak.at("fp32");
  const auto fp8 = peak.find("fp8");
  DeviceType device{.name = name,
                    .peak_bf16 = rate(quantity(bf16, parse_flops), limits::kPeak, bf16),
                    .peak_fp32 = rate(quantity(fp32, parse_flops), limits::kPeak, fp32),
                    .memory = read_memory(memory),
                    .memory_bandwidth = rate(quantity(memory_bandwidth, parse_bandwidth),
                                             limits::kBandwidth, memory_bandwidth)};
  if (fp8) device.peak_fp8 = rate(quantity(*fp8, parse_flops), limits::kPeak, *fp8);
  if (const auto reserve = object.find("reserve")) {
    device.reserve = quantity(*reserve, parse_bytes);
    if (*device.reserve >= device.memory)
      reserve->fail(fmt::format("a reserve of {} leaves nothing of {}",
                                format_bytes(*device.reserve), format_bytes(device.memory)),
                    "write what a context and communicators take, or leave it out");
  }
  if (const auto kind = object.find("kind"))
    device.kind = static_cast<DeviceKind>(kind->choice(kDeviceKinds));
  peak.finish();
  object.finish();
  return device;
}

}  // namespace

Cluster cluster_from_json(const Json& json, const std::string& source) {
  JsonObject object{JsonValue(json, source)};
  expect_format(object, "braid.cluster", 1);
  Cluster cluster;
  cluster.name = object.string("name");

  std::vector<std::string> type_names;
  JsonObject devices = object.object("devices");
  for (const auto& [name, value] : devices.entries()) {
    type_names.push_back(name);
    cluster.device_types.push_back(read_device(name, JsonObject(value)));
  }
  if (type_names.empty())
    devices.fail("no device type is described", "add at least one, for example \"A100-80G\"");

  std::int64_t total = 0;
  const JsonValue nodes = object.at("nodes");
  for (const JsonValue& value : nodes.array()) {
    JsonObject entry{value};
    NodeGroup group;
    group.count = static_cast<int>(entry.integer_or("count", 1, limits::kNodes));
    group.device_type = static_cast<int>(entry.at("device").choice(type_names));
    group.devices = static_cast<int>(entry.integer("devices", limits::kNodeDevices));
    group.inside = read_link(entry.object("link"));
    entry.finish();
    total += std::int64_t{group.count} * group.devices;
    cluster.groups.push_back(group);
  }
  if (cluster.groups.empty()) nodes.fail("the cluster has no nodes", "add at least one node");
  if (total > limits::kDevices.high)
    nodes.fail(fmt::format("{} devices are more than {}", total, limits::kDevices.high),
               "plan for a smaller cluster");

  if (cluster.num_nodes() > 1 || object.has("network")) {
    cluster.between = read_link(object.object("network"));
  } else {
    cluster.between = cluster.groups.front().inside;
  }
  object.finish();
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& file) {
  return cluster_from_json(read_json(file), file.string());
}

Json to_json(const Cluster& cluster) {
  const auto link = [](const Link& l) {
    return Json{{"bandwidth", l.bandwidth.value()}, {"latency", l.latency.value()}};
  };
  Json json{{"format", "braid.cluster"}, {"version", 1}, {"name", cluster.name}};
  for (const DeviceType& device : cluster.device_types) {
    Json& entry = json["devices"][device.name];
    if (device.kind != DeviceKind::gpu) entry["kind"] = name_of(device.kind);
    entry["memory"] = device.memory.value();
    entry["memory_bandwidth"] = device.memory_bandwidth.value();
    if (device.reserve) entry["reserve"] = device.reserve->value();
    entry["peak"] = {{"bf16", device.peak_bf16.value()}, {"fp32", device.peak_fp32.value()}};
    if (device.peak_fp8) entry["peak"]["fp8"] = device.peak_fp8->value();
  }
  json["nodes"] = Json::array();
  for (const NodeGroup& group : cluster.groups)
    json["nodes"].push_back(
        {{"count", group.count},
         {"device", cluster.device_types[static_cast<std::size_t>(group.device_type)].name},
         {"devices", group.devices},
         {"link", link(group.inside)}});
  json["network"] = link(cluster.between);
  return json;
}

}  // namespace braid
