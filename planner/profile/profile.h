#pragma once
// Measured numbers as data. Where a profile says nothing, cost/ falls back on a roofline.

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/core/json_fwd.h"
#include "planner/model/model.h"
#include "planner/strategy/strategy.h"

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

// One layer at work on one device, a micro-batch at a time, while all other devices do the same.
// Communication is left out: collectives are measured by themselves.
struct ComputeSample {
  double samples = 1;  // of the micro-batch on this device
  std::int64_t sequence = 0;
  int split = 1;  // ways in which tensor parallelism cut the layer
  TensorKind kind = TensorKind::megatron;
  int context = 1;  // ways in which context parallelism cut the tokens
  Seconds forward;
  std::optional<Seconds> backward_input;
  std::optional<Seconds> backward_weight;
  // What recomputation adds to backward.
  std::optional<Seconds> selective, full;
  // Short-lived bytes at the worst moment, beyond what is kept for backward, by Recompute. None
  // where the device's allocator does not count.
  std::optional<Bytes> workspace, workspace_selective, workspace_full;
};

// How compute on a device and a collective slow each other down while both run, as factors ≥ 1.
// Where a collective makes no progress beside compute its factor is kNoProgress. On a GPU it waits
// for kernels that are under way, the longer the longer they are: `block` is how long forward and
// backward of one of the blocks took beside which it was measured.
struct OverlapSample {
  Collective op = Collective::all_gather;
  int ranks = 1;
  double compute = 1;
  double communication = 1;
  std::optional<Seconds> block = std::nullopt;
};
inline constexpr double kNoProgress = 1000;

// Ranks of a group that compute for some time, meet, and go on: how long they wait for the slowest,
// as a share of that time.
struct MeetingSample {
  int ranks = 2;
  Seconds apart;
  double wait = 0;
};

// The optimizer's step over a flat buffer: norm, update, copy to the weights.
struct UpdateSample {
  std::int64_t elements = 0;
  Seconds seconds;
};

// A matrix product of [m, k] and [k, n], on all devices at once.
struct GemmSample {
  Precision precision = Precision::fp32;
  std::int64_t m = 0, n = 0, k = 0;
  FlopsPerSecond rate;  // of one device
};

// Where and with what a profile was taken: facts by name, in the order in which they are told. It
// holds only where all of them do.
struct Fact {
  std::string name, value;
  bool operator==(const Fact&) const = default;
};

// How far repetitions of one measurement lay apart: the middle half of them, against their median.
struct Noise {
  int measurements = 0;
  double typical = 0;  // the median over all measurements
  double worst = 0;
  std::string worst_name;

  // The spreads are middle halves; this is the standard deviation of a normal distribution with
  // one.
  double deviation() const { return typical / 1.349; }
};

// What a calibration found each term to take against what the samples say.
struct Correction {
  double compute = 1;     // forward, backward, recomputation
  double tensor = 1;      // tensor- and expert-parallel collectives
  double context = 1;     // rings
  double sharding = 1;    // ZeRO's gathers, gradient reduction
  double transfer = 1;    // between stages
  double update = 1;      // optimizer
  Seconds step_overhead;  // of every iteration, whatever the plan
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
  // How much faster layers run while half of the ranks rest: by this share of their time. Ranks
  // share the power of a GPU, the memory of a node, or a core.
  std::optional<double> rest_gain;
  std::optional<Bytes> context;           // device memory that a process takes before any tensor
  std::optional<double> allocator_slack;  // reserved beyond what is allocated, as a fraction
  std::vector<OverlapSample> overlaps;    // take the place of overlap_slowdown
  std::vector<MeetingSample> meetings;    // take the place of what noise makes likely
  std::vector<UpdateSample> updates;
  std::vector<GemmSample> gemms;
  std::vector<Fact> taken_on;
  std::optional<Noise> noise;
  std::optional<Correction> correction;

  const MeasuredLayer* layer(const std::string& type) const;
};

// The facts that differ, as lines such as "ranks: 8 then, 4 now"; empty where the profile holds.
std::vector<std::string> differences(std::span<const Fact> then, std::span<const Fact> now);

inline constexpr int kProfileVersion = 3;

Profile read_profile(const std::filesystem::path& file);
Profile profile_from_json(const Json& json, const std::string& source);
Json to_json(const Profile& profile);

}  // namespace braid
