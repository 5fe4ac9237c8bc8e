// Cluster files: what they say, that they survive a round trip, and what they refuse.

#include "planner/cluster/cluster.h"

#include <gtest/gtest.h>

#include <set>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "tests/support/mistakes.h"

namespace braid {
namespace {

std::filesystem::path source_dir() { return BRAID_SOURCE_DIR; }
std::filesystem::path shipped(const std::string& name) {
  return source_dir() / "configs" / "clusters" / (name + ".json");
}

constexpr const char* kTwoKinds = R"({
  "format": "braid.cluster",
  "version": 1,
  "name": "two kinds",
  "devices": {
    "fast": {
      "memory": "80GiB",
      "memory_bandwidth": "2TB/s",
      "peak": {"bf16": "300TFLOPS", "fp32": 2e13}
    },
    "slow": {
      "kind": "cpu",
      "memory": 16000000000,
      "memory_bandwidth": 9e11,
      "reserve": "1GB",
      "peak": {"bf16": "100TFLOPS", "fp32": "10TFLOPS", "fp8": "200TFLOPS"}
    }
  },
  "nodes": [
    {"count": 3, "device": "fast", "devices": 8, "link": {"bandwidth": "300GB/s", "latency": "3us"}},
    {"device": "slow", "devices": 4, "link": {"bandwidth": "16GB/s", "latency": 0}}
  ],
  "network": {"bandwidth": "100Gb/s", "latency": "10us"}
})";

Cluster two_kinds() {
  return cluster_from_json(parse_json(kTwoKinds, "cluster.json"), "cluster.json");
}

TEST(Cluster, ReadsUnitsAndPlainNumbers) {
  const Cluster cluster = two_kinds();
  ASSERT_EQ(cluster.device_types.size(), 2U);
  EXPECT_EQ(cluster.device_types[0].memory, Bytes(std::int64_t{80} << 30));
  EXPECT_EQ(cluster.device_types[0].memory_bandwidth, BytesPerSecond(2e12));
  EXPECT_EQ(cluster.device_types[0].peak(Precision::bf16), FlopsPerSecond(300e12));
  EXPECT_EQ(cluster.device_types[0].peak(Precision::fp32), FlopsPerSecond(20e12));
  EXPECT_EQ(cluster.device_types[1].memory, Bytes(16'000'000'000));
  EXPECT_EQ(cluster.device_types[0].kind, DeviceKind::gpu) << "where nothing is said";
  EXPECT_EQ(cluster.device_types[1].kind, DeviceKind::cpu);
  EXPECT_EQ(cluster.device_types[0].peak_fp8, std::nullopt);
  EXPECT_EQ(cluster.device_types[1].peak(Precision::fp8), FlopsPerSecond(200e12));
  EXPECT_EQ(cluster.device_types[0].reserve, std::nullopt);
  EXPECT_EQ(cluster.device_types[1].reserve, Bytes(1'000'000'000));
  EXPECT_EQ(cluster.groups[1].count, 1);
  EXPECT_EQ(cluster.groups[1].inside.latency, Seconds(0));
  EXPECT_EQ(cluster.between.bandwidth, BytesPerSecond(12.5e9));
}

TEST(Cluster, CountsNodesAndDevices) {
  const Cluster cluster = two_kinds();
  EXPECT_EQ(cluster.num_nodes(), 4);
  EXPECT_EQ(cluster.num_devices(), 28);
  EXPECT_EQ(cluster.node_width(), 4);
  EXPECT_FALSE(cluster.uniform());
}

TEST(Cluster, NeedsNoNetworkForOneNode) {
  Json json = parse_json(kTwoKinds, "cluster.json");
  json.erase("network");
  json["nodes"] = Json::array({json["nodes"][1]});
  const Cluster cluster = cluster_from_json(json, "cluster.json");
  EXPECT_EQ(cluster.between.bandwidth, cluster.groups.front().inside.bandwidth);
  EXPECT_TRUE(cluster.uniform());
}

TEST(Cluster, RoundTripsByteForByte) {
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() / "configs" / "clusters")) {
    const Cluster cluster = read_cluster(entry.path());
    const std::string text = to_json(cluster).dump(2);
    const Cluster again = cluster_from_json(parse_json(text, "again"), "again");
    EXPECT_EQ(to_json(again).dump(2), text) << entry.path();
    EXPECT_EQ(again.num_devices(), cluster.num_devices()) << entry.path();
  }
}

TEST(Cluster, WritesEveryFigureInBaseUnits) {
  const Json json = to_json(two_kinds());
  EXPECT_EQ(json["devices"]["fast"].dump(),
            R"({"memory":85899345920,"memory_bandwidth":2000000000000.0,)"
            R"("peak":{"bf16":300000000000000.0,"fp32":20000000000000.0}})");
  EXPECT_EQ(json["nodes"][1].dump(), R"({"count":1,"device":"slow","devices":4,)"
                                     R"("link":{"bandwidth":16000000000.0,"latency":0.0}})");
  EXPECT_EQ(json["network"]["bandwidth"], 12.5e9);
  EXPECT_DOUBLE_EQ(json["network"]["latency"].get<double>(), 10e-6);
}

TEST(Cluster, Fp8IsOnlyWhereADeviceHasIt) {
  const Cluster cluster = two_kinds();
  EXPECT_NO_THROW(expect_precision(cluster, Precision::bf16, "--precision"));
  try {
    expect_precision(cluster, Precision::fp8, "--precision");
    ADD_FAILURE() << "'fast' has no fp8";
  } catch (const Error& error) {
    EXPECT_EQ(error.mistake().what, "'fast' has no products in fp8");
    EXPECT_EQ(error.mistake().where, "--precision");
  }
  // A CPU only rounds the factors.
  DeviceType thread = cluster.device_types[0];
  thread.kind = DeviceKind::cpu;
  EXPECT_TRUE(thread.computes(Precision::fp8));
  EXPECT_EQ(thread.peak(Precision::fp8), thread.peak_bf16);
  for (const char* name : {"h100-1x8", "h200-1x8", "rtx4090-8"})
    EXPECT_NO_THROW(expect_precision(read_cluster(shipped(name)), Precision::fp8, name));
  for (const char* name : {"a100-80g-8", "v100-32g-8", "a100-v100-mixed", "titan-rtx-1x8"})
    EXPECT_THROW(expect_precision(read_cluster(shipped(name)), Precision::fp8, name), Error);
}

TEST(Cluster, ALimitIsWithinADevice) {
  const Cluster cluster = two_kinds();
  EXPECT_EQ(largest_memory(cluster), Bytes(std::int64_t{80} << 30));
  EXPECT_NO_THROW(expect_limit_within(cluster, Bytes(), "--memory"));
  EXPECT_NO_THROW(expect_limit_within(cluster, Bytes(std::int64_t{80} << 30), "--memory"));
  EXPECT_THROW(expect_limit_within(cluster, Bytes((std::int64_t{80} << 30) + 1), "--memory"),
               Error);
}

struct ShippedCase {
  const char* name;
  int nodes, devices;
  const char* memory;  // of the first device type
};

constexpr ShippedCase kShipped[] = {
    {"a100-80g-8", 1, 8, "79.14GiB"},         {"h100-2x8", 2, 16, "79.10GiB"},
    {"h100-2048x8", 2048, 16384, "79.10GiB"}, {"v100-32g-8x4", 8, 32, "31.74GiB"},
    {"h200-32x8", 32, 256, "139.80GiB"},      {"rtx4090-8", 1, 8, "23.61GiB"},
    {"a100-v100-mixed", 2, 16, "79.14GiB"},
};

TEST(Cluster, ShipsWhatTheNamesSay) {
  for (const ShippedCase& c : kShipped) {
    const Cluster cluster = read_cluster(shipped(c.name));
    EXPECT_EQ(cluster.num_nodes(), c.nodes) << c.name;
    EXPECT_EQ(cluster.num_devices(), c.devices) << c.name;
    EXPECT_EQ(cluster.device_types.front().memory, parse_bytes(c.memory, c.name)) << c.name;
  }
}

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, unused] : object.items()) keys.insert(key);
  return keys;
}

TEST(Cluster, SchemaNamesTheSameFields) {
  const Json schema = read_json(source_dir() / "schemas" / "cluster.schema.json");
  const Json& defs = schema["$defs"];
  const Json json = to_json(two_kinds());
  EXPECT_EQ(keys_of(schema["properties"]), keys_of(json));
  EXPECT_EQ(keys_of(defs["nodes"]["properties"]), keys_of(json["nodes"][0]));
  EXPECT_EQ(keys_of(defs["link"]["properties"]), keys_of(json["network"]));
  EXPECT_EQ(keys_of(defs["device"]["properties"]), keys_of(json["devices"]["slow"]));
  EXPECT_EQ(keys_of(defs["device"]["properties"]["peak"]["properties"]),
            keys_of(json["devices"]["slow"]["peak"]));
}

struct ShrinkCase {
  const char* fact;
  int devices;
  int first_nodes, first_width;  // of the first group that is left
  std::size_t groups;
};

constexpr ShrinkCase kShrinks[] = {
    {"all of it", 28, 3, 8, 2},           {"part of one node", 3, 1, 3, 1},
    {"one whole node", 8, 1, 8, 1},       {"two whole nodes", 16, 2, 8, 1},
    {"all nodes of a kind", 24, 3, 8, 1},
};

TEST(Shrink, TakesTheFirstDevices) {
  for (const ShrinkCase& c : kShrinks) {
    const Cluster smaller = shrink(two_kinds(), c.devices);
    EXPECT_EQ(smaller.num_devices(), c.devices) << c.fact;
    EXPECT_EQ(smaller.groups.front().count, c.first_nodes) << c.fact;
    EXPECT_EQ(smaller.groups.front().devices, c.first_width) << c.fact;
    EXPECT_EQ(smaller.groups.size(), c.groups) << c.fact;
  }
  EXPECT_EQ(shrink(two_kinds(), 28).name, "two kinds");
  EXPECT_EQ(shrink(two_kinds(), 16).name, "two kinds (16 devices)");
}

TEST(Shrink, TakesWholeNodesOnly) {
  for (const int devices : {-1, 0, 9, 12, 20, 25, 26, 29}) {
    try {
      shrink(two_kinds(), devices);
      ADD_FAILURE() << devices << " devices were taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.mistake().where, "--devices");
      EXPECT_FALSE(error.mistake().fix.empty());
    }
  }
}

TEST(Shrink, YieldsAClusterThatCanBeWritten) {
  for (const int devices : {1, 4, 8, 16, 24}) {
    const std::string text = to_json(shrink(two_kinds(), devices)).dump();
    EXPECT_EQ(to_json(cluster_from_json(parse_json(text, "x"), "x")).dump(), text) << devices;
  }
}

constexpr MistakeCase kMistakes[] = {
    {"another format", R"([{"op": "replace", "path": "/format", "value": "braid.plan"}])",
     "'braid.plan'", "cluster.json"},
    {"another version", R"([{"op": "replace", "path": "/version", "value": 0}])", "version 0",
     "cluster.json"},
    {"an unknown key", R"([{"op": "add", "path": "/networks", "value": {}}])",
     "did you mean 'network'", "cluster.json"},
    {"no device type", R"([{"op": "replace", "path": "/devices", "value": {}}])", "no device type",
     "cluster.json: devices"},
    {"a misspelt device type", R"([{"op": "replace", "path": "/nodes/0/device", "value": "fats"}])",
     "did you mean 'fast'", "cluster.json: nodes[0].device"},
    {"an unknown kind of device",
     R"([{"op": "add", "path": "/devices/fast/kind", "value": "gpus"}])", "did you mean 'gpu'",
     "cluster.json: devices.fast.kind"},
    {"hardly any bandwidth",
     R"([{"op": "replace", "path": "/network/bandwidth", "value": 1e-300}])",
     "1e-300 a second is out of range", "cluster.json: network.bandwidth"},
    {"a peak beyond all devices",
     R"([{"op": "replace", "path": "/devices/slow/peak/bf16", "value": 1e300}])",
     "1e+300 a second is out of range", "cluster.json: devices.slow.peak.bf16"},
    {"a latency beyond all links",
     R"([{"op": "replace", "path": "/nodes/0/link/latency", "value": 1e308}])",
     "1e+308 s is out of range", "cluster.json: nodes[0].link.latency"},
    {"more memory than any device",
     R"([{"op": "replace", "path": "/devices/fast/memory", "value": 1e18}])",
     "1000000000000000000 bytes are out of range", "cluster.json: devices.fast.memory"},
    {"a reserve of all there is",
     R"([{"op": "add", "path": "/devices/fast/reserve", "value": "80GiB"}])",
     "a reserve of 80.0 GiB leaves nothing of 80.0 GiB", "cluster.json: devices.fast.reserve"},
    {"no nodes", R"([{"op": "replace", "path": "/nodes", "value": []}])", "no nodes",
     "cluster.json: nodes"},
    {"a node of no devices", R"([{"op": "replace", "path": "/nodes/1/devices", "value": 0}])",
     "0 is out of range", "cluster.json: nodes[1].devices"},
    {"too many devices", R"([{"op": "replace", "path": "/nodes/0/count", "value": 1000000}])",
     "8000004 devices are more than", "cluster.json: nodes"},
    {"several nodes without a network", R"([{"op": "remove", "path": "/network"}])",
     "'network' is missing", "cluster.json"},
    {"a link without a latency", R"([{"op": "remove", "path": "/nodes/0/link/latency"}])",
     "'latency' is missing", "cluster.json: nodes[0].link"},
    {"a link that moves nothing",
     R"([{"op": "replace", "path": "/network/bandwidth", "value": 0}])", "more than zero",
     "cluster.json: network.bandwidth"},
    {"a memory of the wrong unit",
     R"([{"op": "replace", "path": "/devices/fast/memory", "value": "80GB/s"}])",
     "'80GB/s' is not a memory size", "cluster.json: devices.fast.memory"},
    {"a negative latency", R"([{"op": "replace", "path": "/network/latency", "value": -1}])",
     "-1 is out of range", "cluster.json: network.latency"},
    {"a peak that is missing", R"([{"op": "remove", "path": "/devices/slow/peak/fp32"}])",
     "'fp32' is missing", "cluster.json: devices.slow.peak"},
};

TEST(Cluster, RefusesMistakes) {
  expect_refused(kMistakes, parse_json(kTwoKinds, "cluster.json"),
                 [](const Json& json) { cluster_from_json(json, "cluster.json"); });
}

}  // namespace
}  // namespace braid
