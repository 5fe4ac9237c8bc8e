#pragma once
// The contract between planner and runtime: whatever the planner can emit, the runtime can run, and
// whatever the runtime can run, the planner can price.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/core/json_fwd.h"
#include "planner/core/units.h"
#include "planner/cost/cost_kind.h"
#include "planner/cost/layer_cost.h"
#include "planner/cost/pipeline.h"
#include "planner/model/model.h"
#include "planner/strategy/mesh.h"
#include "planner/strategy/pipeline.h"
#include "planner/strategy/strategy.h"

namespace braid {

// Layers [begin, end) of the model.
struct LayerRange {
  int begin = 0, end = 0;
  constexpr int size() const { return end - begin; }
  constexpr auto operator<=>(const LayerRange&) const = default;
};

struct StagePlan {
  std::vector<LayerRange> chunks;    // one, or several under an interleaved schedule
  std::vector<Strategy> strategies;  // one for each layer, in the order of the chunks
};

// What one stage was predicted to take, for one of its devices.
struct StagePrediction {
  StageTimes times;
  LayerTime terms;          // summed over the layers; one micro-batch, and once an iteration
  double redistribute = 0;  // between layers of different layout, one micro-batch, both ways
  LayerMemory memory;       // summed over the layers; activations of one micro-batch, all deferred
  double in_flight = 1;     // micro-batches whose activations are held at once
  Bytes messages;           // to neighbouring stages that have not left yet
  Bytes slack;              // what the allocator reserves beyond activations and workspace
  Bytes overhead;           // context and communicators
  Bytes peak;               // what must fit
  Bytes budget;             // into what

  // What the device's allocator has handed out at the worst moment.
  Bytes allocated() const { return peak - overhead - slack; }
};

struct Prediction {
  Seconds iteration;
  double samples_per_second = 0;
  std::vector<StagePrediction> stages;
};

// How good the plan is known to be.
struct Certificate {
  std::string algorithm;
  Seconds lower_bound;    // no plan of the searched space is faster
  Seconds physics_bound;  // no plan at all: FLOPs, memory traffic and link traffic
};

struct ProfileReference {
  std::string file;
  std::string fingerprint;  // of its content, so that a changed profile is noticed
};

struct Plan {
  Model model;
  Cluster cluster;
  CostKind cost = CostKind::roofline;
  std::optional<ProfileReference> profile;
  Precision precision = Precision::bf16;
  Precision gradient_precision = Precision::fp32;
  Bytes memory_limit;  // for one device; zero: all it has
  std::int64_t global_batch = 1;
  PipelineShape shape;
  MeshOrder mesh_order = MeshOrder::pp_dp_cp_tp;
  std::vector<StagePlan> stages;
  Prediction prediction;  // without stages: the plan was not priced
  Certificate certificate;

  Mesh mesh() const { return {cluster.num_devices(), shape.stages, mesh_order}; }
  std::int64_t micro_batch() const { return global_batch / shape.micro_batches; }
};

// The layers of a stage in order, over its chunks.
std::vector<int> layers_of(const StagePlan& stage);

// Throws Error unless the plan can be run: every layer exactly once and in order, every strategy
// fills its stage, divides what it splits, and the schedule exists. `source` names the file in
// messages.
void verify(const Plan& plan, const std::string& source);

// The file's JSON, strict and verified. A plan written by hand may leave out its prediction and all
// that has a usual value, and may name files for model and cluster. Reading what was written and
// writing it again yields the same bytes, except that runs of equal strategies are merged and
// numbers take their shortest form.
Plan read_plan(const std::filesystem::path& file);
Plan plan_from_json(const Json& json, const std::string& source);
Json to_json(const Plan& plan);
std::string plan_text(const Plan& plan);  // the file's bytes

}  // namespace braid
