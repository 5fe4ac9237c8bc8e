#pragma once
// Galvatron's cost model (Hetu-Galvatron v3) exactly as it is coded, quirks included, so that its
// search can be repeated and compared. docs/design/0003 lists what Braid's own model does
// otherwise. Units inside: milliseconds and MB of 2^20 bytes, as in the original.

#include <span>
#include <vector>

#include "planner/cost/layer_cost.h"
#include "planner/profile/fit.h"
#include "planner/profile/profile.h"
#include "planner/strategy/strategy.h"

namespace braid {

// One point of Galvatron's outer loop.
struct GalvatronTask {
  std::int64_t batch = 1;
  int micro_batches = 1;
  int stages = 1;
};

struct GalvatronPrice {
  double no_sync = 0;  // ms of one micro-batch, forward and backward
  double sync = 0;     // the same with the gradient reduction of the last one
  double forward = 0;  // of no_sync
};

// As many blocks for each stage, what is left on the last.
std::vector<int> galvatron_cuts(int blocks, int stages);

class GalvatronCost {
 public:
  // Throws Error where the profile lacks what the formulas need.
  GalvatronCost(const Profile& profile, const Model& model, int devices);

  // Samples of one micro-batch on one data-parallel rank.
  static std::int64_t local_samples(const GalvatronTask& task, const Strategy& strategy);

  // `type` counts block types only: 0 is the first.
  GalvatronPrice layer(int type, const Strategy& strategy, const GalvatronTask& task) const;
  // MB, rounded up as the search rounds it.
  double layer_memory(int type, const Strategy& strategy, const GalvatronTask& task,
                      int stage) const;

  // Embedding and head: what they add to one stage (zero in the middle of a pipeline).
  GalvatronPrice outside(const Strategy& strategy, const GalvatronTask& task, int stage) const;
  double outside_memory(const Strategy& strategy, const GalvatronTask& task, int stage) const;

  // Buffer that tensor parallelism up to `widest` keeps for sequence parallelism.
  double sequence_buffer(const GalvatronTask& task, int widest) const;
  // Its price for a change of tensor degree between two layers; used in its recurrence only.
  double change(int from, int to, const GalvatronTask& task) const;

  // Seconds of an iteration from each stage's no-sync and sync milliseconds.
  static double iteration(std::span<const double> no_sync, std::span<const double> sync,
                          int micro_batches);

  // MB of context that outside_memory counts on every stage.
  static double outside_overhead();
  // MB that the search may use: a fifth is set aside above 20 GB.
  static double budget(Bytes limit);

  int devices() const { return devices_; }

 private:
  struct BlockType {
    ForwardFit forward;
    double parameter_mb = 0;
    BySplit saved_mb;
    double saved_full_mb = 0;
    double tokens = 0, hidden = 0;
    int count = 0;
  };

  // Samples of a micro-batch that a tensor group of this width works on.
  double group_samples(const GalvatronTask& task, int width) const;
  double bandwidth(int ranks, bool consecutive) const;  // MB/ms
  double pair_bandwidth(int stages) const;
  double sweep(Collective op, int ranks, double megabytes) const;  // ms
  double state_ratio(const Strategy& strategy, const GalvatronTask& task) const;
  double boundary_mb(const BlockType& type, const GalvatronTask& task,
                     const Strategy& strategy) const;
  const MeasuredOutside& placement(const GalvatronTask& task, int stage) const;
  double gradient_rate(const Strategy& strategy) const;  // ms per MB

  const Profile& profile_;
  int devices_;
  double overlap_;
  double half_;  // volume of bf16 against fp32
  std::vector<BlockType> blocks_;
  ForwardFit outside_;
};

}  // namespace braid
