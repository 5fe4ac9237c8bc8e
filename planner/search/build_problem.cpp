#include "planner/search/build_problem.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "planner/plan/legal.h"

namespace braid {

namespace {

struct PricedStrategy {
  int strategy;
  LayerCost cost;
};

// Whether a is at least as good as b in every respect any stage could ask for.
bool covers(const LayerCost& a, const LayerCost& b) {
  return a.time.forward() <= b.time.forward() &&
         a.time.backward_input() <= b.time.backward_input() &&
         a.time.backward_weight() <= b.time.backward_weight() &&
         a.time.once_reduce() <= b.time.once_reduce() &&
         a.time.once_update() <= b.time.once_update() && a.memory.states() <= b.memory.states() &&
         a.memory.constants <= b.memory.constants && a.memory.activations <= b.memory.activations &&
         a.memory.deferred <= b.memory.deferred && a.memory.in_turn >= b.memory.in_turn &&
         a.memory.workspace <= b.memory.workspace;
}

class ProblemBuilder {
 public:
  ProblemBuilder(const SearchContext& context, const TreeBranch& branch,
                 const Configuration& configuration, const ProblemOptions& options)
      : context_(context), options_(options) {
    built_.configuration = configuration;
    for (const Strategy& s : kept_strategies(branch))
      if (context.cost.prices(s)) built_.strategies.push_back(s);
    for (const Strategy& s : built_.strategies) layout_index(layout_of(s));
  }

  BuiltProblem build() {
    const Configuration& c = built_.configuration;
    PipelineProblem& problem = built_.problem;
    problem.ramp_after = ramp_counts_after(c.shape.schedule);
    problem.multiple = c.shape.chunks;
    const auto& layers = context_.model.layers;
    for (std::size_t l = 1; l + 1 < layers.size(); ++l) {
      auto found = std::ranges::find(built_.block_types, layers[l]);
      if (found == built_.block_types.end()) found = built_.block_types.insert(found, layers[l]);
      problem.blocks.push_back(static_cast<int>(found - built_.block_types.begin()));
    }
    problem.cuts =
        context_.cost.given_cuts(static_cast<int>(problem.blocks.size()), c.shape.stages);
    for (int stage = 0; stage < c.shape.stages; ++stage) add_stage(stage);
    if (context_.even_cuts && problem.cuts.empty()) problem.cuts = even_cuts(problem);
    return std::move(built_);
  }

 private:
  int layout_index(const ActivationLayout& layout) {
    const auto [at, added] = layouts_.emplace(layout, static_cast<int>(layouts_.size()));
    return at->second;
  }

  StageSite site(int stage) const {
    const Configuration& c = built_.configuration;
    return {
        {context_.cluster.num_devices(), c.shape.stages, c.order}, c.shape, stage, c.micro_batch};
  }

  bool offered(const Strategy& s, const LayerShape& shape) const {
    const bool block = shape.kind == LayerKind::block || shape.kind == LayerKind::merge;
    const auto& wanted = block ? options_.filter.blocks : options_.filter.outside;
    return (!wanted || wanted(s)) &&
           !strategy_fault(shape, s, built_.configuration.micro_batch).has_value();
  }

  // Prices of one layer type on stages of one class, without those that another of the same layout
  // beats everywhere.
  const std::vector<PricedStrategy>& prices(int type, const StageSite& where) {
    const auto key = std::pair(type, context_.cost.stage_class(where));
    const auto found = prices_.find(key);
    if (found != prices_.end()) return found->second;
    const LayerShape& shape = context_.model.types[static_cast<std::size_t>(type)].shape;
    std::vector<PricedStrategy> kept;
    for (std::size_t i = 0; i < built_.strategies.size(); ++i) {
      const Strategy& s = built_.strategies[i];
      if (!offered(s, shape)) continue;
      const PricedStrategy candidate{static_cast<int>(i), context_.cost.layer(type, s, where)};
      ++built_.priced;
      const auto same_layout = [&](const PricedStrategy& other) {
        return layout_of(built_.strategies[static_cast<std::size_t>(other.strategy)]) ==
               layout_of(s);
      };
      if (std::ranges::any_of(kept, [&](const PricedStrategy& k) {
            return same_layout(k) && covers(k.cost, candidate.cost);
          }))
        continue;
      std::erase_if(kept, [&](const PricedStrategy& k) {
        return same_layout(k) && covers(candidate.cost, k.cost);
      });
      kept.push_back(candidate);
    }
    return prices_.emplace(key, std::move(kept)).first->second;
  }

  // Layouts in which every layer type has, for each of its options, one in layout `better` that is
  // as good: they can be left out (Rule::covered_layout).
  const std::set<int>& covered_layouts(const StageSite& where) {
    const StageClass kind = context_.cost.stage_class(where);
    const auto found = covered_.find(kind);
    if (found != covered_.end()) return found->second;
    std::set<int>& covered = covered_[kind];
    if (!context_.drop_covered_layouts) return covered;
    std::vector<int> types = built_.block_types;
    types.push_back(context_.model.layers.front());
    types.push_back(context_.model.layers.back());
    for (const auto& [layout, index] : layouts_)
      for (const auto& [other, better] : layouts_)
        if (index != better && !covered.contains(better) &&
            std::ranges::all_of(
                types, [&](int type) { return covers_layout(better, index, type, where); })) {
          covered.insert(index);
          break;
        }
    return covered;
  }

  bool covers_layout(int better, int worse, int type, const StageSite& where) {
    const auto& options = prices(type, where);
    const auto lies = [&](const PricedStrategy& p, int layout) {
      return layouts_.at(layout_of(built_.strategies[static_cast<std::size_t>(p.strategy)])) ==
             layout;
    };
    return std::ranges::all_of(options, [&](const PricedStrategy& w) {
      return !lies(w, worse) || std::ranges::any_of(options, [&](const PricedStrategy& b) {
        return lies(b, better) && covers(b.cost, w.cost);
      });
    });
  }

  LayerMenu menu(int type, const StageSite& where, StageWeights weights) {
    if (where.stage > 0) {
      weights.ramp.reduce += kTieWeight;
      weights.load.reduce += options_.late_reduce ? 1.0 : kTieWeight;
    }
    const std::set<int>& covered = covered_layouts(where);
    LayerMenu result;
    for (const PricedStrategy& p : prices(type, where)) {
      const Strategy& s = built_.strategies[static_cast<std::size_t>(p.strategy)];
      const int layout = layouts_.at(layout_of(s));
      if (covered.contains(layout)) continue;
      const LayerTime& t = p.cost.time;
      const auto value = [&](const TimeWeights& w) {
        return w(t.forward(), t.backward_input(), t.backward_weight(), t.once_reduce(),
                 t.once_update());
      };
      result.options.push_back(
          {.ramp = value(weights.ramp),
           .load = value(weights.load),
           .memory = context_.cost.resident(p.cost.memory, where).value(),
           .workspace = context_.cost.reserved_workspace(p.cost.memory).value(),
           .layout = layout,
           .strategy = p.strategy});
    }
    drop_dominated(result);
    return result;
  }

  void add_stage(int stage) {
    const StageSite where = site(stage);
    const StageWeights weights =
        options_.weights ? *options_.weights : context_.cost.weights(where.shape, stage);
    StageMenus menus;
    for (const int type : built_.block_types) menus.blocks.push_back(menu(type, where, weights));
    if (where.first()) menus.before.push_back(menu(context_.model.layers.front(), where, weights));
    if (where.last()) menus.after.push_back(menu(context_.model.layers.back(), where, weights));
    menus.transitions = transitions(where, weights);
    const Bytes beyond = options_.within ? Bytes() : context_.beyond;
    menus.budget = (context_.cost.budget(context_.memory_limit, where) + beyond -
                    context_.cost.stage_overhead(where) - context_.cost.messages(where))
                       .value();
    menus.ramp = weights.ramp.transfer * transfer(where);
    menus.load = weights.load.transfer * transfer(where);
    built_.problem.stages.push_back(std::move(menus));
  }

  // A change of layout moves the activation on the way forward and its gradient on the way back.
  Transitions transitions(const StageSite& where, const StageWeights& weights) {
    const std::vector<double>& seconds = changes(where);
    const auto layouts = static_cast<int>(layouts_.size());
    Transitions table(layouts);
    for (int from = 0; from < layouts; ++from)
      for (int to = 0; to < layouts; ++to) {
        const double t = seconds[static_cast<std::size_t>(from) * layouts_.size() +
                                 static_cast<std::size_t>(to)];
        table.set(from, to, weights.ramp(t, t, 0, 0, 0), weights.load(t, t, 0, 0, 0));
      }
    table.close();
    return table;
  }

  // Seconds of each change of layout, one direction.
  const std::vector<double>& changes(const StageSite& where) {
    const auto [found, added] = changes_.try_emplace(context_.cost.stage_class(where));
    std::vector<double>& seconds = found->second;
    if (!added) return seconds;
    seconds.resize(layouts_.size() * layouts_.size());
    for (const auto& [from, i] : layouts_)
      for (const auto& [to, j] : layouts_) {
        // The least over the block types, so that the search never overestimates.
        double t = std::numeric_limits<double>::infinity();
        for (const int type : built_.block_types)
          t = std::min(t, options_.recurrence
                              ? context_.cost.recurrence_change(type, from, to, where) / 2
                              : context_.cost.redistribute(type, from, to, where));
        seconds[static_cast<std::size_t>(i) * layouts_.size() + static_cast<std::size_t>(j)] = t;
      }
    return seconds;
  }

  // The least that handing a micro-batch on can take, wherever the cut.
  double transfer(const StageSite& where) const {
    if (where.last()) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (const int type : built_.block_types)
      least = std::min(least, context_.cost.transfer(type, where).value());
    return least;
  }

  const SearchContext& context_;
  const ProblemOptions& options_;
  BuiltProblem built_;
  std::map<ActivationLayout, int> layouts_;
  std::map<std::pair<int, StageClass>, std::vector<PricedStrategy>> prices_;  // by type
  std::map<StageClass, std::set<int>> covered_;
  std::map<StageClass, std::vector<double>> changes_;  // seconds, by layouts from and to
};

}  // namespace

BuiltProblem build_problem(const SearchContext& context, const TreeBranch& branch,
                           const Configuration& configuration, const ProblemOptions& options) {
  return ProblemBuilder(context, branch, configuration, options).build();
}

Plan plan_of(const SearchContext& context, const BuiltProblem& built,
             const PipelineSolution& solution) {
  Plan plan;
  plan.model = context.model;
  plan.cluster = context.cluster;
  plan.memory_limit = context.memory_limit;
  plan.shape = built.configuration.shape;
  plan.mesh_order = built.configuration.order;
  plan.global_batch = built.configuration.micro_batch * plan.shape.micro_batches;
  const int stages = plan.shape.stages;
  const int chunks = plan.shape.chunks;
  plan.stages.resize(static_cast<std::size_t>(stages));
  int begin = 0;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int stage = 0; stage < stages; ++stage) {
      int size = solution.blocks[static_cast<std::size_t>(stage)] / chunks;
      if (chunk == 0 && stage == 0) ++size;                    // the embedding
      if (chunk + 1 == chunks && stage + 1 == stages) ++size;  // the head
      plan.stages[static_cast<std::size_t>(stage)].chunks.push_back({begin, begin + size});
      begin += size;
    }
  int first_block = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const int blocks = solution.blocks[at];
    const auto menus = stage_layers(built.problem, stage, first_block, blocks);
    first_block += blocks;
    const std::vector<int>& choice = solution.stages[at].choice;
    for (std::size_t l = 0; l < choice.size(); ++l) {
      const LayerOption& option = menus[l]->options[static_cast<std::size_t>(choice[l])];
      plan.stages[at].strategies.push_back(
          built.strategies[static_cast<std::size_t>(option.strategy)]);
    }
  }
  return plan;
}

}  // namespace braid
