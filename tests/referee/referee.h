#pragma once
// A second opinion on the price of a plan: device by device, link by link, from the definitions,
// and slow. It shares data with the planner (plans, clusters, layer shapes, the constants of
// planner/cost/assumptions.h, bytes that elementwise operators move), and no code that prices,
// places, schedules or searches.
//
// Not covered: grids of PrimePar, encoder-decoders, patch merges, poolings, profiles.

#include <map>
#include <tuple>

#include "planner/plan/plan.h"
#include "tests/referee/layer.h"
#include "tests/referee/schedule.h"

namespace braid::referee {

// Prices plans of one model on one cluster with one mesh order and pipeline shape. Prices of layers
// are kept, so that many plans of one configuration cost little more than one.
class Referee {
 public:
  // Stages and strategies of `plan` are not looked at.
  explicit Referee(const Plan& plan, const Simplifications& simple = {});

  // Of a plan that differs from the constructor's in its stages and strategies alone.
  Seconds iteration(const std::vector<StagePlan>& stages);

 private:
  const LayerSeconds& layer(int layer, const Strategy& strategy, int stage);
  // Seconds in one direction ahead of a layer, on its stage, where the previous one has another
  // layout.
  double entry(int layer, const Strategy& from, const Strategy& to, int stage);
  double transfer(int layer, int from, int to);
  // `strategies`: of all layers of the model.
  StageSeconds stage(const StagePlan& plan, const std::vector<Strategy>& strategies, int stage);
  std::vector<double> spare_behind_head(const StagePlan& plan, int stage);
  double boundary_bytes(int layer) const;
  std::vector<int> devices(int stage) const;

  Plan plan_;
  Wires wires_;
  Setting setting_;
  std::map<std::tuple<int, Strategy, int>, LayerSeconds> layers_;  // by type and stage
  std::map<std::tuple<int, Strategy, Strategy, int>, double> entries_;
  std::map<std::tuple<int, int, int>, double> transfers_;
  std::map<std::pair<Strategy, int>, std::vector<double>> spare_;  // of blocks like the head
};

// Seconds of one step.
Seconds price(const Plan& plan, const Simplifications& simple = {});

}  // namespace braid::referee
