#pragma once
// What the layers of a stage cost under every strategy that is worth a look, and what changes of
// layout between them cost.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "planner/cost/cost_model.h"
#include "planner/model/model.h"
#include "planner/search/decision_tree.h"

namespace braid {

class Watch;

// Which strategies a problem offers. Unset: all of the branch.
struct StrategyFilter {
  std::function<bool(const Strategy&)> blocks;
  std::function<bool(const Strategy&)> outside;  // embedding and head
  bool all() const { return !blocks && !outside; }
};

struct PricedStrategy {
  int strategy = 0;  // an index into StrategyList::strategies
  int layout = 0;
  LayerCost cost;
};

// The strategies of a branch that a cost model prices, and the layouts that they lead to.
struct StrategyList {
  std::vector<Strategy> strategies;
  std::vector<int> layout;                // of each strategy
  std::vector<ActivationLayout> layouts;  // by index
  FixedParts fixed;                       // TreeBranch::fixed
};
StrategyList strategies_of(const TreeBranch& branch, const CostModel& cost);

// Shared by all sites of one StageClass.
struct StagePrices {
  std::map<int, std::vector<PricedStrategy>> layers;  // by type; what others cover is left out
  int layouts = 0;              // that a layer is offered in, counted anew from 0
  std::vector<double> changes;  // seconds, one direction, by layouts from and to; no detour is less
  std::int64_t priced = 0;      // layer costs computed

  double& change(int from, int to) { return changes[index(from, to)]; }
  double change(int from, int to) const { return changes[index(from, to)]; }

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(layouts) +
           static_cast<std::size_t>(to);
  }
};

struct PricingTask {
  const Model& model;
  const CostModel& cost;
  bool drop_covered_layouts = true;  // Rule::covered_layout
  bool recurrence = false;           // changes of layout as Galvatron's recurrence charges them
  Watch* watch = nullptr;            // asked on the way; may be null
};
StagePrices price_site(const PricingTask& task, const StrategyList& list,
                       const StrategyFilter& filter, const StageSite& site);

// Prices of one tree's branches, each class once. Any thread may ask.
class PriceCache {
 public:
  explicit PriceCache(const PricingTask& task) : task_(task) {}

  const StagePrices& of(const TreeBranch& branch, const StrategyList& list, const StageSite& site);
  std::int64_t priced() const;  // layer costs computed

 private:
  struct Entry {
    std::mutex mutex;
    std::optional<StagePrices> prices;  // never changed once there
  };
  PricingTask task_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, StageClass>, std::unique_ptr<Entry>> entries_;  // by the branch's stages
};

}  // namespace braid
