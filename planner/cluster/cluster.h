#pragma once
// Where it runs: nodes of devices, the links inside and between them.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/json_fwd.h"
#include "planner/core/units.h"
#include "planner/model/layer.h"

namespace braid {

// What a process takes of a device before any tensor depends on it: on a GPU a CUDA context and
// communicators' buffers, on a CPU, whose memory here is what tensors may take, nothing.
enum class DeviceKind { gpu, cpu };
std::string name_of(DeviceKind kind);

struct DeviceType {
  std::string name;
  FlopsPerSecond peak_bf16;  // dense, tensor cores (fp16 where the device has no bf16)
  FlopsPerSecond peak_fp32;
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  DeviceKind kind = DeviceKind::gpu;
  std::optional<FlopsPerSecond> peak_fp8 = std::nullopt;  // dense; empty: has no such products
  // Memory that a context and communicators take before any tensor; empty: as assumed of a GPU
  // (cost/assumptions.h), nothing of a CPU.
  std::optional<Bytes> reserve = std::nullopt;

  // CPUs round the factors of products in fp8 and multiply them without (runtime/ops/fp8.h).
  bool computes(Precision precision) const {
    return precision != Precision::fp8 || peak_fp8 || kind == DeviceKind::cpu;
  }
  // Of matrix products.
  FlopsPerSecond peak(Precision precision) const {
    switch (precision) {
      case Precision::fp32:
        return peak_fp32;
      case Precision::bf16:
        return peak_bf16;
      case Precision::fp8:
        return peak_fp8.value_or(peak_bf16);
    }
    return peak_bf16;
  }
  // Of what stays in bf16 beside blocks' products in fp8.
  FlopsPerSecond wide_peak(Precision precision) const {
    return peak(precision == Precision::fp8 ? Precision::bf16 : precision);
  }
};

struct Link {
  BytesPerSecond bandwidth;  // one direction, one device
  Seconds latency;
};

// A run of equal nodes.
struct NodeGroup {
  int count = 0;        // nodes
  int device_type = 0;  // index into Cluster::device_types
  int devices = 0;      // per node
  Link inside;          // between two devices of a node
};

struct Cluster {
  std::string name;
  std::vector<DeviceType> device_types;
  std::vector<NodeGroup> groups;
  Link between;  // per device, between nodes; unused with one node

  int num_nodes() const;
  int num_devices() const;
  // Devices of the smallest node: the widest group that surely stays inside one.
  int node_width() const;
  bool uniform() const;  // all nodes are alike, in one entry or several
};

// Of the device that has most.
Bytes largest_memory(const Cluster& cluster);
// Throws Error for a limit that no device of the cluster has: it would be cut in silence. `where`
// names the flag or the key of a file.
void expect_limit_within(const Cluster& cluster, Bytes limit, const std::string& where);

// Throws Error if a device of the cluster has no products in this precision. `where` names the flag
// or the key of a file.
void expect_precision(const Cluster& cluster, Precision precision, const std::string& where);

// The first `devices` devices (whole nodes, or part of the first node).
Cluster shrink(const Cluster& cluster, int devices);

Cluster read_cluster(const std::filesystem::path& file);
Cluster cluster_from_json(const Json& json, const std::string& source);
Json to_json(const Cluster& cluster);

}  // namespace braid
