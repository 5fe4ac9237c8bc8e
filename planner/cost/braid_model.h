#pragma once
// Braid's own model of cost: measured figures where a profile has them, a roofline elsewhere.

#include <map>
#include <optional>
#include <vector>

#include "planner/cost/assumptions.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/measured_layer.h"
#include "planner/cost/network.h"
#include "planner/cost/overlap.h"
#include "planner/cost/redistribution.h"
#include "planner/profile/fit.h"

namespace braid {

class BraidModel final : public CostModel {
 public:
  struct Settings {
    Precision precision = Precision::bf16;
    Precision gradient_precision = Precision::fp32;
    Assumptions assumptions;
    bool analytic = false;  // device and collective models where nothing was measured
  };
  BraidModel(const Model& model, const Cluster& cluster, const Profile* profile,
             const Settings& settings);

  bool prices(const Strategy&) const override { return true; }
  LayerCost layer(int type, const Strategy& strategy, const StageSite& site) const override;
  LayerTime least_compute(int type, const StageSite& site) const override;
  Bytes resident(const LayerMemory& memory, const StageSite& site) const override;
  Bytes least_resident(const LayerCost& cost, const Strategy& strategy,
                       const StageSite& site) const override;
  Bytes slack(Bytes in_use) const override;
  Bytes stage_overhead(const StageSite& site) const override;
  Bytes messages(const StageSite& site) const override;
  bool knows_moments() const override { return knows_moments_; }
  Bytes message(int type, const StageSite& site) const override;
  Bytes looked_at(int type, const StageSite& site) const override;
  double redistribute(int type, const ActivationLayout& from, const ActivationLayout& to,
                      const StageSite& site) const override;
  Seconds transfer(int type, const StageSite& site) const override;
  Bytes budget(Bytes limit, const StageSite& site) const override;
  StageWeights weights(const PipelineShape& shape, int stage) const override;
  StageClass stage_class(const StageSite& site) const override;

 private:
  // Everything about a layer type that no strategy changes.
  struct Facts {
    LayerShape shape;
    LayerFlops flops;          // one sample, forward
    LayerFlops selective;      // what selective recomputation repeats
    double traffic = 0;        // bytes, one sample, forward
    double transient[3] = {};  // bytes, one sample, by Recompute
    double boundary = 0;
    std::optional<MeasuredTimes> times;  // measured, split by split
    std::optional<ForwardFit> forward;   // or only forward, whole
    double forward_share = 1;            // embedding and head share one measurement
    const MeasuredLayer* measured = nullptr;
  };
  struct Compute {
    double forward = 0, backward_input = 0, backward_weight = 0, recompute = 0, attention = 0;

    double all_backward() const { return backward_input + backward_weight + recompute; }
  };
  struct Work;  // one layer under one strategy at one site

  Compute compute(const Facts& facts, const Strategy& strategy, double samples,
                  const DeviceType& device, const PipelineShape& pipeline) const;
  Compute analytic(const Facts& facts, const Strategy& strategy, double samples,
                   const DeviceType& device) const;
  double parameters(const Facts& facts, const Strategy& strategy, const StageSite& site) const;
  double expert_parameters(const Facts& facts, const Strategy& strategy) const;
  bool has_measured_parameters(const Facts& facts) const;
  double tied_elements(const Facts& facts, const Strategy& strategy, const StageSite& site) const;
  void communicate(const Work& work, LayerTime& time) const;
  void communicate_in_block(const Work& work, LayerTime& time) const;
  void communicate_in_square(const Work& work, LayerTime& time) const;
  void add_up_in_square(const Work& work, LayerTime& time) const;
  void synchronise(const Work& work, LayerTime& time) const;
  // What the layer's compute and a collective among so many ranks do to each other.
  Overlap overlap(const Work& work, Collective op, int ranks) const;
  LayerTime time(const Work& work) const;
  LayerMemory states(const Work& work) const;
  LayerMemory memory(const Work& work, ShortLived& short_lived) const;
  ShortLived short_lived(const Work& work, const Split& cut, double transient) const;
  double square_workspace(const Work& work) const;
  // What ranks of a group were measured to wait for each other.
  struct Waits {
    Curve seconds;    // over those since the last meeting
    double rare = 0;  // share of the longest stretch
  };
  const Waits& waits_of(int ranks) const;
  double waiting(int ranks, double compute, double meetings) const;
  double waiting_at_the_end(const Work& work) const;
  double spare_backward(const Work& head) const;
  double update_time(double elements, const DeviceType& device) const;
  double memory_rate(const DeviceType& device) const;
  bool finds_moments() const;
  std::vector<const DeviceType*> device_types(const StageSite& site) const;  // distinct
  Bytes least_memory(const StageSite& site) const;
  // Bytes that wait for the stage's worst moment: activations and what weight gradients need.
  Bytes held(const LayerMemory& memory, const StageSite& site) const;
  template <class Visit>
  void visit_device_types(const StageSite& site, Visit visit) const;

  const Model& model_;
  const Cluster& cluster_;
  const Profile* profile_;
  Settings settings_;
  Network network_;
  Redistributions redistributions_;
  std::vector<Facts> facts_;
  std::map<int, Waits> meetings_;  // by ranks
  Correction correction_;
  double slack_;
  std::optional<Bytes> context_;
  bool knows_moments_ = true;
};

}  // namespace braid
