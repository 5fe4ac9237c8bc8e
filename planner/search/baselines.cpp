#include "planner/search/baselines.h"

#include <algorithm>

#include "planner/core/error.h"
#include "planner/search/galvatron_search.h"
#include "planner/search/uniform_plans.h"

namespace braid {

namespace {

// Deepest pipeline that devices and blocks allow.
int deepest(const DecisionTree& tree) {
  int stages = 1;
  for (const TreeBranch& branch : tree.branches) stages = std::max(stages, branch.stages);
  return stages;
}

class Baseline {
 public:
  Baseline(const SearchOptions& options, const Cluster& cluster, const DecisionTree& tree)
      : algorithm_(options.algorithm),
        cost_(options.cost),
        deepest_(deepest(tree)),
        node_(cluster.node_width()) {}

  bool offers(const Configuration& c) const {
    if (c.order != MeshOrder::pp_dp_cp_tp) return false;
    switch (algorithm_) {
      case Algorithm::dp:
      case Algorithm::zero3:
      case Algorithm::tp:
        return c.shape.stages == 1;
      case Algorithm::pp:
        return c.shape.stages == deepest_ && c.shape.schedule == ScheduleKind::one_f_one_b;
      case Algorithm::megatron_3d:
        return c.shape.schedule == ScheduleKind::one_f_one_b ||
               c.shape.schedule == ScheduleKind::interleaved;
      case Algorithm::galvatron:
      case Algorithm::bmw:
        return c.shape.schedule == ScheduleKind::one_f_one_b;
      case Algorithm::exact:
        break;
    }
    internal_failure("the exact search offers all of the tree", std::source_location::current());
  }

  bool offers(const Strategy& s) const {
    if (algorithm_ == Algorithm::bmw) return true;
    if (algorithm_ == Algorithm::galvatron) return offered_by_galvatron(s, cost_);
    if (s.cp > 1 || (s.tp > 1 && s.tp_kind != TensorKind::megatron)) return false;
    const bool plain = s.recompute == Recompute::none && s.ep == 1;
    switch (algorithm_) {
      case Algorithm::dp:
        return plain && s.tp == 1 && s.zero == Zero::none;
      case Algorithm::zero3:
        return plain && s.tp == 1 && (s.zero == Zero::parameters || s.replicas() == 1);
      case Algorithm::tp:
        // As wide as a node; replicas beyond it.
        return plain && s.tp == std::min(node_, s.devices()) && s.zero == Zero::none;
      case Algorithm::pp:
        return plain && s.tp == 1 && s.zero == Zero::none;
      case Algorithm::megatron_3d:
        return s.zero == Zero::none || s.zero == Zero::optimizer;
      case Algorithm::exact:
      case Algorithm::galvatron:
      case Algorithm::bmw:
        break;
    }
    return false;
  }

 private:
  Algorithm algorithm_;
  CostKind cost_;
  int deepest_, node_;
};

}  // namespace

Exploration explore_baseline(const SearchContext& context, const DecisionTree& tree,
                             const SearchOptions& options) {
  const Baseline baseline(options, context.cluster, tree);
  Finalists finalists(options.alternatives + 1);
  Exploration result;
  const auto explore = [&](const Configuration& c) {
    look(context.watch);
    if (!baseline.offers(c)) return;
    ++result.statistics.configurations;
    const TreeBranch& branch = branch_of(tree, c.shape.stages);
    for (const Strategy& s : kept_strategies(branch)) {
      if (!baseline.offers(s)) continue;
      const double limit = std::min(finalists.limit(c.shape), context.faster_than);
      std::optional<Finalist> found =
          uniform_plan(context, branch, c, s, limit, result.statistics.strategies);
      if (!found) continue;
      ++result.statistics.solved;
      finalists.add(std::move(*found));
      if (context.watch != nullptr) context.watch->found(*finalists.best());
    }
  };
  result.statistics.interrupted =
      !unless_stopped([&] { std::ranges::for_each(tree.configurations, explore); });
  result.ranked = finalists.ranked();
  return result;
}

DecisionTree offered_by(const SearchOptions& options, const Cluster& cluster, DecisionTree tree) {
  if (options.algorithm == Algorithm::exact) return tree;
  const Baseline baseline(options, cluster, tree);
  std::erase_if(tree.configurations, [&](const Configuration& c) { return !baseline.offers(c); });
  for (TreeBranch& branch : tree.branches)
    std::erase_if(branch.leaves,
                  [&](const TreeLeaf& leaf) { return !baseline.offers(leaf.strategy); });
  return tree;
}

}  // namespace braid
