// A walk through the plans of a space, from the answer on: other cuts, strategies and
// configurations, one to three changes at a time, priced by the simulator.

#include <algorithm>

#include "planner/cost/make_cost_model.h"
#include "planner/plan/legal.h"
#include "planner/simulate/price_plan.h"
#include "tests/relations/relations.h"

namespace braid {

namespace {

constexpr int kPlans = 600;  // priced for one question
class Walk {
 public:
  explicit Walk(const Answered& answered)
      : question_(answered.question()),
        dice_(answered.question().seed),
        tree_(searched_tree(question_.model, question_.cluster, nullptr, options_of(question_))),
        cost_(make_cost_model({.global_batch = question_.global_batch}, question_.model,
                              question_.cluster, nullptr)),
        best_(*answered.plan()) {}

  // The fastest plan that was met and fits.
  const Plan& go() {
    Plan here = best_;
    for (int i = 0; i < kPlans; ++i) {
      std::optional<Plan> next = dice_.chance(0.1) ? anywhere() : std::optional(here);
      for (int changes = dice_.number(1, 3); next && changes > 0; --changes) next = changed(*next);
      if (!next) continue;
      next->prediction = price_plan(*next, *cost_);
      if (!fits(next->prediction)) continue;
      if (next->prediction.iteration < best_.prediction.iteration) best_ = *next;
      if (next->prediction.iteration <= 1.02 * here.prediction.iteration) here = *std::move(next);
      if (i % 50 == 49) here = best_;
    }
    return best_;
  }

 private:
  using Cuts = std::vector<int>;  // blocks of each stage

  std::vector<Strategy> offered(const Plan& plan, int layer) const {
    std::vector<Strategy> legal;
    for (const Strategy& s : kept_strategies(branch_of(tree_, plan.shape.stages)))
      if (!strategy_fault(plan.model.type_of(layer).shape, s, plan.micro_batch()))
        legal.push_back(s);
    return legal;
  }

  Cuts cuts_of(const Plan& plan) const {
    Cuts cuts;
    for (const StagePlan& stage : plan.stages) {
      cuts.push_back(0);
      for (const int layer : layers_of(stage))
        cuts.back() += layer > 0 && layer + 1 < plan.model.num_layers() ? 1 : 0;
    }
    return cuts;
  }

  // Embedding and head stand with the first and the last block.
  static void lay_out(Plan& plan, const Cuts& cuts, const std::vector<Strategy>& strategies) {
    plan.stages.assign(cuts.size(), {});
    int begin = 0;
    for (int chunk = 0; chunk < plan.shape.chunks; ++chunk)
      for (std::size_t s = 0; s < cuts.size(); ++s) {
        const bool first = begin == 0;
        const bool last = chunk + 1 == plan.shape.chunks && s + 1 == cuts.size();
        const int end = begin + cuts[s] / plan.shape.chunks + (first ? 1 : 0) + (last ? 1 : 0);
        plan.stages[s].chunks.push_back({begin, end});
        begin = end;
      }
    for (StagePlan& stage : plan.stages)
      for (const int layer : layers_of(stage))
        stage.strategies.push_back(strategies[static_cast<std::size_t>(layer)]);
  }

  // By layer.
  static std::vector<Strategy> strategies_of(const Plan& plan) {
    std::vector<Strategy> strategies(plan.model.layers.size());
    for (const StagePlan& stage : plan.stages) {
      const std::vector<int> layers = layers_of(stage);
      for (std::size_t i = 0; i < layers.size(); ++i)
        strategies[static_cast<std::size_t>(layers[i])] = stage.strategies[i];
    }
    return strategies;
  }

  void configure(Plan& plan, const Configuration& c) const {
    plan.shape = c.shape;
    plan.mesh_order = c.order;
  }

  // Any configuration, even cuts as far as they go, and every layer what one strategy allows.
  std::optional<Plan> anywhere() {
    Plan plan = best_;
    configure(plan, dice_.any(tree_.configurations));
    const int blocks = plan.model.num_layers() - 2;
    const int unit = plan.shape.chunks;
    if (blocks % unit != 0 || blocks / unit < plan.shape.stages) return std::nullopt;
    Cuts cuts(static_cast<std::size_t>(plan.shape.stages),
              blocks / unit / plan.shape.stages * unit);
    for (int left = blocks / unit % plan.shape.stages; left > 0; --left)
      cuts[static_cast<std::size_t>(left)] += unit;
    if (!allowed(cuts)) return std::nullopt;
    std::vector<Strategy> strategies;
    std::optional<Strategy> last;
    for (int layer = 0; layer < plan.model.num_layers(); ++layer) {
      const std::vector<Strategy> legal = offered(plan, layer);
      if (legal.empty()) return std::nullopt;
      const bool stays = last && std::ranges::find(legal, *last) != legal.end();
      if (!stays) last = dice_.any(legal);
      strategies.push_back(*last);
    }
    lay_out(plan, cuts, strategies);
    return plan;
  }

  bool allowed(const Cuts& cuts) const {
    return !question_.space.even_cuts ||
           std::ranges::all_of(cuts, [&](int count) { return count == cuts.front(); });
  }

  std::optional<Plan> changed(const Plan& plan) {
    switch (dice_.number(0, 5)) {
      case 0:
        return cut_elsewhere(plan);
      case 1:
        return configured_otherwise(plan);
      case 2:
        return with_another_strategy(plan, [](int, int) { return true; });
      case 3:
        return with_another_strategy(plan, [&](int layer, int chosen) {
          return plan.model.layers[static_cast<std::size_t>(layer)] ==
                 plan.model.layers[static_cast<std::size_t>(chosen)];
        });
      default:
        return with_another_strategy(plan, [](int layer, int chosen) { return layer == chosen; });
    }
  }

  // A block, or one for each chunk, from one stage to another.
  std::optional<Plan> cut_elsewhere(const Plan& plan) {
    if (plan.shape.stages == 1) return std::nullopt;
    Cuts cuts = cuts_of(plan);
    const int last = plan.shape.stages - 1;
    cuts[static_cast<std::size_t>(dice_.number(0, last))] -= plan.shape.chunks;
    cuts[static_cast<std::size_t>(dice_.number(0, last))] += plan.shape.chunks;
    if (std::ranges::any_of(cuts, [](int count) { return count < 1; }) || !allowed(cuts))
      return std::nullopt;
    Plan other = plan;
    lay_out(other, cuts, strategies_of(plan));
    return other;
  }

  std::optional<Plan> configured_otherwise(const Plan& plan) {
    std::vector<Configuration> near;
    for (const Configuration& c : tree_.configurations)
      if (c.shape.stages == plan.shape.stages) near.push_back(c);
    Plan other = plan;
    configure(other, dice_.any(near));
    const Cuts cuts = cuts_of(plan);
    if (std::ranges::any_of(cuts, [&](int count) { return count % other.shape.chunks != 0; }))
      return std::nullopt;
    const std::vector<Strategy> strategies = strategies_of(plan);
    for (int layer = 0; layer < plan.model.num_layers(); ++layer)
      if (strategy_fault(plan.model.type_of(layer).shape,
                         strategies[static_cast<std::size_t>(layer)], other.micro_batch()))
        return std::nullopt;
    lay_out(other, cuts, strategies);
    return other;
  }

  // Of one layer, and of those that go with it as far as they can.
  template <class GoesWith>
  std::optional<Plan> with_another_strategy(const Plan& plan, GoesWith goes_with) {
    const int chosen = dice_.number(0, plan.model.num_layers() - 1);
    const Strategy strategy = dice_.any(offered(plan, chosen));
    std::vector<Strategy> strategies = strategies_of(plan);
    for (int layer = 0; layer < plan.model.num_layers(); ++layer)
      if (goes_with(layer, chosen) &&
          !strategy_fault(plan.model.type_of(layer).shape, strategy, plan.micro_batch()))
        strategies[static_cast<std::size_t>(layer)] = strategy;
    Plan other = plan;
    lay_out(other, cuts_of(plan), strategies);
    return other;
  }

  const Question& question_;
  Dice dice_;
  DecisionTree tree_;
  std::unique_ptr<CostModel> cost_;
  Plan best_;
};

}  // namespace

Plan fastest_of_a_walk(const Answered& answered) {
  Plan found = Walk(answered).go();
  verify(found, "a plan near the answer");
  return found;
}

}  // namespace braid
