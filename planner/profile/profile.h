#pragma once
// Measured numbers as data. Where a profile says nothing, cost/ falls back on a roofline.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/core/json_fwd.h"
#include "planner/model/model.h"

namespace braid {

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all, point_to_point };
std::string name_of(Collective op);

// One measured collective: `bytes` is the tensor of one rank (of the whole, for a gather's result).
struct CollectiveSample {
  Collective op = Collective::all_reduce;
  int ranks = 1;
  int stride = 1;  // distance in device ids between members
  Bytes bytes;
  Seconds seconds;
};

// The bus bandwidth that large messages reach: 2(n-1)/n · bytes / seconds for an all-reduce of n
// ranks, bytes / seconds for point to point.
struct BandwidthSample {
  Collective op = Collective::all_reduce;
  int ranks = 1;
  int stride = 1;
  BytesPerSecond bandwidth;
};

// One measured pass of one layer over a micro-batch on one device.
struct ComputeSample {
  double samples = 1;  // of the micro-batch on this device
  std::int64_t sequence = 0;
  int split = 1;  // ways in which tensor parallelism cut the layer
  Seconds forward;
  std::optional<Seconds> backward_input;
  std::optional<Seconds> backward_weight;
};

// Measured bytes of one sample or of one layer's parameters, by ways of splitting.
using BySplit = std::map<int, double>;

struct MeasuredLayer {
  std::string type;  // a LayerType's name, or "outside": embedding and head together
  std::vector<ComputeSample> compute;
  std::optional<double> parameter_bytes;  // fp32 bytes of one layer
  BySplit saved;                          // activation bytes kept, one sample
  std::optional<double> saved_full;       // the same under full recomputation, unsplit
};

// Embedding and head where they were measured together: bytes of their states (weights, gradients
// and optimizer: four fp32 copies' worth) and of one sample's activations.
struct MeasuredOutside {
  BySplit states;
  BySplit activations;
};

struct Profile {
  std::string name;
  std::string source;          // who measured, with what
  std::optional<Model> model;  // carried along, so that planning needs no other file
  std::optional<Cluster> cluster;
  Precision precision = Precision::bf16;
  Precision gradient_precision = Precision::fp32;
  std::vector<BandwidthSample> bandwidths;
  std::vector<CollectiveSample> collectives;
  std::vector<MeasuredLayer> layers;
  std::optional<MeasuredOutside> only_stage, first_stage, last_stage;
  std::optional<double> overlap_slowdown;  // of compute and communication that run together, ≥ 1
  std::optional<Bytes> context;            // device memory that a process takes before any tensor
  std::optional<double> allocator_slack;   // reserved beyond what is allocated, as a fraction

  const MeasuredLayer* layer(const std::string& type) const;
};

Profile read_profile(const std::filesystem::path& file);
Profile profile_from_json(const Json& json, const std::string& source);
Json to_json(const Profile& profile);

}  // namespace braid
