#pragma once
// Galvatron's formulas behind the common seam.

#include "planner/cost/cost_model.h"
#include "planner/cost/galvatron_cost.h"

namespace braid {

class GalvatronModel final : public CostModel {
 public:
  GalvatronModel(const Profile& profile, const Model& model, const Cluster& cluster,
                 std::int64_t global_batch);

  bool prices(const Strategy& strategy) const override;
  LayerCost layer(int type, const Strategy& strategy, const StageSite& site) const override;
  Bytes resident(const LayerMemory& memory, const StageSite& site) const override;
  Bytes stage_overhead(const StageSite& site) const override;
  // Changes of layout cost nothing in its final price.
  double redistribute(int, const ActivationLayout&, const ActivationLayout&,
                      const StageSite&) const override {
    return 0;
  }
  double recurrence_change(int type, const ActivationLayout& from, const ActivationLayout& to,
                           const StageSite& site) const override;
  Bytes sequence_buffer(int widest, const StageSite& site) const override;
  // Transfers are inside its layer times.
  Seconds transfer(int, const StageSite&) const override { return Seconds(); }
  Bytes budget(Bytes limit, const StageSite& site) const override;
  StageWeights weights(const PipelineShape& shape, int stage) const override;
  std::optional<Seconds> own_iteration(const PipelineShape& shape,
                                       std::span<const StageTimes> stages) const override;
  bool has_own_iteration() const override { return true; }
  StageClass stage_class(const StageSite& site) const override {
    return {site.stage, site.shape.stages, site.shape.micro_batches, site.micro_batch};
  }
  // Equal counts with the remainder on the last stage: its formula looks at the first and the last
  // stage only, so that any other cut could hide work in between.
  std::vector<int> given_cuts(int blocks, int stages) const override;
  bool outside_shares_strategy() const override { return true; }

 private:
  GalvatronTask task(const StageSite& site) const;

  const Model& model_;
  const Cluster& cluster_;
  std::int64_t global_batch_;
  GalvatronCost cost_;
  std::vector<int> block_index_;  // of a model type among block types, which GalvatronCost counts
};

}  // namespace braid
