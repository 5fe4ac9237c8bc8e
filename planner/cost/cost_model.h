#pragma once
// The seam between prices and search: every algorithm asks one of these, so that all compare.

#include <optional>
#include <span>
#include <vector>

#include "planner/cost/layer_cost.h"
#include "planner/cost/pipeline.h"
#include "planner/strategy/mesh.h"
#include "planner/strategy/pipeline.h"

namespace braid {

// Where a layer stands.
struct StageSite {
  Mesh mesh;
  PipelineShape shape;
  int stage = 0;
  std::int64_t micro_batch = 1;  // samples of one micro-batch, over the whole stage

  bool first() const { return stage == 0; }
  bool last() const { return stage + 1 == shape.stages; }
};

// Identifies sites whose layers have equal prices; comparable, otherwise opaque.
using StageClass = std::vector<std::int64_t>;

class CostModel {
 public:
  virtual ~CostModel() = default;

  // Whether the model has a formula for this kind of split.
  virtual bool prices(const Strategy& strategy) const = 0;
  virtual LayerCost layer(int type, const Strategy& strategy, const StageSite& site) const = 0;
  // Least compute of a layer under any strategy; zero where that is not known.
  virtual LayerTime least_compute(int type, const StageSite& site) const {
    static_cast<void>(type), static_cast<void>(site);
    return {};
  }
  // Bytes of a layer that stay through the stage's worst moment: states, and activations of every
  // micro-batch in flight with their slack.
  virtual Bytes resident(const LayerMemory& memory, const StageSite& site) const = 0;
  // Bytes of a layer that stay through a moment which all layers of the stage share: what these add
  // up to is never more than the stage's peak.
  virtual Bytes least_resident(const LayerCost& cost, const Strategy& strategy,
                               const StageSite& site) const {
    static_cast<void>(strategy);
    return resident(cost.memory, site);
  }
  // What an allocator reserves beyond `in_use` bytes that come and go.
  virtual Bytes slack(Bytes in_use) const {
    static_cast<void>(in_use);
    return Bytes();
  }
  Bytes reserved_workspace(const LayerMemory& memory) const {
    return memory.workspace + slack(memory.workspace);
  }
  // Bytes of the stage that no layer owns: context, communicators.
  virtual Bytes stage_overhead(const StageSite& site) const = 0;
  // Bytes on their way to neighbouring stages.
  virtual Bytes messages(const StageSite&) const { return Bytes(); }
  // Whether a layer's bytes are those of Braid's runtime, moment by moment
  // (LayerCost::short_lived), so that a stage's schedule can be walked with them.
  virtual bool knows_moments() const { return false; }
  // One device's share of what a layer hands on, one micro-batch; and of the other stream's output
  // that it looks at.
  virtual Bytes message(int type, const StageSite& site) const {
    static_cast<void>(type), static_cast<void>(site);
    return Bytes();
  }
  virtual Bytes looked_at(int type, const StageSite& site) const {
    static_cast<void>(type), static_cast<void>(site);
    return Bytes();
  }
  // Seconds, one micro-batch and one direction, to bring a layer's input from one layout to
  // another.
  virtual double redistribute(int type, const ActivationLayout& from, const ActivationLayout& to,
                              const StageSite& site) const = 0;
  // What Galvatron's recurrence charges for the same; its final price need not agree.
  virtual double recurrence_change(int type, const ActivationLayout& from,
                                   const ActivationLayout& to, const StageSite& site) const {
    return 2 * redistribute(type, from, to, site);
  }
  // Bytes that a stage keeps aside when its layers may use tensor parallelism up to `widest`,
  // beyond what the layers themselves count.
  virtual Bytes sequence_buffer(int, const StageSite&) const { return Bytes(); }
  // Seconds to hand one micro-batch's activation from stage `site.stage` to the next.
  virtual Seconds transfer(int type, const StageSite& site) const = 0;
  // Bytes that may be used on the devices of a stage when the user allows `limit` (zero: all there
  // is).
  virtual Bytes budget(Bytes limit, const StageSite& site) const = 0;

  // The search's weights of a stage's times.
  virtual StageWeights weights(const PipelineShape& shape, int stage) const = 0;
  // The price of a whole pipeline where the model has a formula of its own; otherwise the event
  // simulator prices it.
  virtual std::optional<Seconds> own_iteration(const PipelineShape&,
                                               std::span<const StageTimes>) const {
    return std::nullopt;
  }
  virtual bool has_own_iteration() const { return false; }

  // Sites of one class price every layer and every change of layout alike; what is in flight is no
  // part of a price.
  virtual StageClass stage_class(const StageSite& site) const = 0;
  // The cuts that its pipeline formula is made for; empty: any.
  virtual std::vector<int> given_cuts(int blocks, int stages) const {
    static_cast<void>(blocks), static_cast<void>(stages);
    return {};
  }
  // Embedding and head must take one strategy together.
  virtual bool outside_shares_strategy() const { return false; }
};

}  // namespace braid
