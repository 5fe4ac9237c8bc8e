#include "planner/search/nearby.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "planner/plan/legal.h"
#include "planner/simulate/price_plan.h"

namespace braid {

namespace {

// Fields in which two strategies differ, the three degrees together counting one.
int distance(const Strategy& a, const Strategy& b) {
  const bool degrees = a.tp != b.tp || a.cp != b.cp || a.dp != b.dp || a.square != b.square;
  return (degrees ? 1 : 0) + (a.tp_kind != b.tp_kind ? 1 : 0) + (a.zero != b.zero ? 1 : 0) +
         (a.ep != b.ep ? 1 : 0) + (a.recompute != b.recompute ? 1 : 0) +
         (a.variant != b.variant ? 1 : 0);
}

class Climber {
 public:
  Climber(const SearchContext& context, const DecisionTree& tree, Finalist start,
          std::int64_t most_layers)
      : context_(context),
        tree_(tree),
        best_(std::move(start)),
        excess_(excess_of(best_.plan)),
        strategies_(kept_strategies(branch_of(tree, best_.plan.shape.stages))),
        left_(most_layers) {}

  Finalist run() {
    unless_stopped([&] {
      while (left_ > 0 && (move_blocks() || change_configuration() || change_strategies())) {
      }
    });
    return std::move(best_);
  }

 private:
  const LayerShape& shape(int layer) const { return best_.plan.model.type_of(layer).shape; }

  bool legal(const Plan& plan) const {
    for (const StagePlan& stage : plan.stages) {
      const std::vector<int> layers = layers_of(stage);
      for (std::size_t i = 0; i < layers.size(); ++i)
        if (!tree_.fixed.allows(shape(layers[i]), stage.strategies[i], plan.micro_batch()) ||
            strategy_fault(shape(layers[i]), stage.strategies[i], plan.micro_batch()))
          return false;
    }
    return true;
  }

  // Takes the place of the best if it is legal and exceeds its memory less, or fits and is faster.
  bool take(Plan plan) {
    look(context_.watch);
    if (left_ <= 0 || !legal(plan)) return false;
    left_ -= plan.model.num_layers();
    plan.prediction = price_plan(plan, context_.cost);
    constexpr double kLeastGain = 1e-6;
    const Bytes excess = excess_of(plan);
    const bool faster =
        plan.prediction.iteration < (1 - kLeastGain) * best_.plan.prediction.iteration;
    if (excess > Bytes() ? excess >= excess_ : excess_ <= Bytes() && !faster) return false;
    excess_ = excess;
    best_.fits = excess <= Bytes();
    best_.plan = std::move(plan);
    return true;
  }

  // A unit of blocks, one of each chunk, across each boundary in both directions.
  bool move_blocks() {
    if (context_.even_cuts || best_.plan.shape.chunks > 1) return false;
    bool moved = false;
    for (int stage = 0; stage + 1 < best_.plan.shape.stages; ++stage)
      for (const bool forward : {true, false})
        while (move_block(stage, forward)) moved = true;
    return moved;
  }

  bool move_block(int stage, bool forward) {
    Plan plan = best_.plan;
    StagePlan& before = plan.stages[static_cast<std::size_t>(stage)];
    StagePlan& after = plan.stages[static_cast<std::size_t>(stage) + 1];
    const int last = plan.model.num_layers() - 1;
    const LayerRange giver = (forward ? before : after).chunks.front();
    // The embedding and the head stay, and a block with them.
    const int blocks = giver.size() - (giver.begin == 0 ? 1 : 0) - (giver.end == last + 1 ? 1 : 0);
    if (blocks < 2) return false;
    if (forward) {
      --before.chunks.front().end;
      --after.chunks.front().begin;
      after.strategies.insert(after.strategies.begin(), before.strategies.back());
      before.strategies.pop_back();
    } else {
      ++before.chunks.front().end;
      ++after.chunks.front().begin;
      before.strategies.push_back(after.strategies.front());
      after.strategies.erase(after.strategies.begin());
    }
    // As its new neighbour of the same type, or as it was.
    Plan adapted = plan;
    StagePlan& taker = adapted.stages[static_cast<std::size_t>(stage) + (forward ? 1 : 0)];
    const int layer = forward ? taker.chunks.front().begin : taker.chunks.front().end - 1;
    const int neighbour = forward ? layer + 1 : layer - 1;
    auto& strategies = taker.strategies;
    if (plan.model.layers[static_cast<std::size_t>(layer)] ==
        plan.model.layers[static_cast<std::size_t>(neighbour)]) {
      (forward ? strategies.front() : strategies.back()) =
          forward ? strategies[1] : strategies[strategies.size() - 2];
      if (take(std::move(adapted))) return true;
    }
    return take(std::move(plan));
  }

  // Another schedule, mesh order or number of micro-batches for the same stages.
  bool change_configuration() {
    for (const Configuration& c : tree_.configurations) {
      const PipelineShape& now = best_.plan.shape;
      if (c.shape.stages != now.stages || c.shape.chunks != now.chunks) continue;
      if (c.shape == now && c.order == best_.plan.mesh_order) continue;
      Plan plan = best_.plan;
      plan.shape = c.shape;
      plan.mesh_order = c.order;
      if (take(std::move(plan))) return true;
    }
    return false;
  }

  // Another strategy for the layers of one type that have one strategy: all of the plan, those of a
  // stage, or the first of a run.
  bool change_strategies() {
    std::set<std::pair<int, Strategy>> seen;
    for (std::size_t stage = 0; stage < best_.plan.stages.size(); ++stage) {
      const std::vector<int> layers = layers_of(best_.plan.stages[stage]);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const int type = best_.plan.model.layers[static_cast<std::size_t>(layers[i])];
        const Strategy old = best_.plan.stages[stage].strategies[i];
        const bool first = i == 0 || type_of(layers[i - 1]) != type ||
                           best_.plan.stages[stage].strategies[i - 1] != old;
        if (!first) continue;
        const bool everywhere = seen.emplace(type, old).second;
        for (const Strategy& other : strategies_) {
          if (distance(other, old) != 1) continue;
          if (everywhere && take(changed(type, old, other, -1))) return true;
          if (best_.plan.stages.size() > 1 &&
              take(changed(type, old, other, static_cast<int>(stage))))
            return true;
          Plan one = best_.plan;
          one.stages[stage].strategies[i] = other;
          if (take(std::move(one))) return true;
        }
      }
    }
    return false;
  }

  int type_of(int layer) const { return best_.plan.model.layers[static_cast<std::size_t>(layer)]; }

  // `only`: a stage, or -1 for all.
  Plan changed(int type, const Strategy& old, const Strategy& other, int only) const {
    Plan plan = best_.plan;
    for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
      if (only >= 0 && static_cast<int>(stage) != only) continue;
      const std::vector<int> layers = layers_of(plan.stages[stage]);
      for (std::size_t i = 0; i < layers.size(); ++i)
        if (type_of(layers[i]) == type && plan.stages[stage].strategies[i] == old)
          plan.stages[stage].strategies[i] = other;
    }
    return plan;
  }

  const SearchContext& context_;
  const DecisionTree& tree_;
  Finalist best_;
  Bytes excess_;  // of its fullest stage over the budget
  std::vector<Strategy> strategies_;
  std::int64_t left_;  // layers that may still be priced
};

}  // namespace

Finalist improve(const SearchContext& context, const DecisionTree& tree, Finalist start,
                 std::int64_t most_layers) {
  return Climber(context, tree, std::move(start), most_layers).run();
}

}  // namespace braid
