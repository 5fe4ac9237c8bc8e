#include "planner/search/build_problem.h"

#include <algorithm>
#include <limits>
#include <map>

namespace braid {

namespace {

StageSite site_of(const SearchContext& context, const Configuration& c, int stage) {
  return {{context.cluster.num_devices(), c.shape.stages, c.order}, c.shape, stage, c.micro_batch};
}

// A problem without stages yet, and the model's type of each of its block types.
PipelineProblem empty_problem(const SearchContext& context, const Configuration& c,
                              std::vector<int>& block_types) {
  PipelineProblem problem;
  problem.watch = context.watch;
  problem.ramp_after = ramp_counts_after(c.shape.schedule);
  problem.multiple = c.shape.chunks;
  const auto& layers = context.model.layers;
  for (std::size_t l = 1; l + 1 < layers.size(); ++l) {
    auto found = std::ranges::find(block_types, layers[l]);
    if (found == block_types.end()) found = block_types.insert(found, layers[l]);
    problem.blocks.push_back(static_cast<int>(found - block_types.begin()));
  }
  return problem;
}

// The least that handing a micro-batch on can take, wherever the cut.
double least_transfer(const SearchContext& context, const std::vector<int>& block_types,
                      const StageSite& where) {
  if (where.last()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const int type : block_types)
    least = std::min(least, context.cost.transfer(type, where).value());
  return least;
}

// The least that each layer takes on any stage, and the transfers between stages: what
// least_pipeline_time asks for.
class LeastPass {
 public:
  explicit LeastPass(const SearchContext& context)
      : context_(context), layers_(context.model.types.size()) {}

  void include(int type, const LayerTime& time) {
    Layer& layer = layers_[static_cast<std::size_t>(type)];
    layer.pass = std::min(layer.pass, time.forward() + time.backward_input());
    layer.weight = std::min(layer.weight, time.backward_weight());
  }
  void add_transfer(double seconds) { transfers_.emplace_back(seconds); }

  // Seconds of an iteration that no cut and no choice can go below; 0 where the cost model has
  // a formula of its own.
  double time(const PipelineShape& shape) const {
    if (context_.cost.has_own_iteration()) return 0;
    double pass = 0, weight = 0;
    for (const int type : context_.model.layers) {
      pass += layers_[static_cast<std::size_t>(type)].pass;
      weight += layers_[static_cast<std::size_t>(type)].weight;
    }
    return least_pipeline_time(shape, {Seconds(pass), Seconds(weight)}, transfers_).value();
  }

 private:
  struct Layer {
    double pass = std::numeric_limits<double>::infinity();
    double weight = pass;
  };
  const SearchContext& context_;
  std::vector<Layer> layers_;
  std::vector<Seconds> transfers_;
};

class ProblemBuilder {
 public:
  ProblemBuilder(const SearchContext& context, const TreeBranch& branch,
                 const Configuration& configuration, const ProblemOptions& options)
      : context_(context),
        branch_(branch),
        options_(options),
        list_(strategies_of(branch, context.cost)),
        least_(context) {
    built_.configuration = configuration;
    built_.strategies = list_.strategies;
  }

  BuiltProblem build() {
    const Configuration& c = built_.configuration;
    PipelineProblem& problem = built_.problem;
    problem = empty_problem(context_, c, built_.block_types);
    problem.cuts =
        context_.cost.given_cuts(static_cast<int>(problem.blocks.size()), c.shape.stages);
    for (int stage = 0; stage < c.shape.stages; ++stage) add_stage(stage);
    if (context_.even_cuts && problem.cuts.empty()) problem.cuts = even_cuts(problem);
    built_.least_time = least_.time(c.shape);
    return std::move(built_);
  }

 private:
  const StagePrices& prices(const StageSite& where) {
    if (context_.prices != nullptr && options_.filter.all() && !options_.recurrence)
      return context_.prices->of(branch_, list_, where);
    const auto [found, added] = prices_.try_emplace(context_.cost.stage_class(where));
    if (added) {
      found->second = price_site({context_.model, context_.cost, context_.drop_covered_layouts,
                                  options_.recurrence, context_.watch},
                                 list_, options_.filter, where);
      built_.priced += found->second.priced;
    }
    return found->second;
  }

  LayerMenu menu(int type, const StagePrices& prices, const StageSite& where,
                 StageWeights weights) {
    if (where.stage > 0) {
      weights.ramp.reduce += kTieWeight;
      weights.load.reduce += options_.late_reduce ? 1.0 : kTieWeight;
    }
    LayerMenu result;
    for (const PricedStrategy& p : prices.layers.at(type)) {
      const LayerTime& t = p.cost.time;
      least_.include(type, t);
      const auto value = [&](const TimeWeights& w) {
        return w(t.forward(), t.backward_input(), t.backward_weight(), t.once_reduce(),
                 t.once_update());
      };
      const Strategy& s = list_.strategies[static_cast<std::size_t>(p.strategy)];
      const Bytes memory = options_.least_memory ? context_.cost.least_resident(p.cost, s, where)
                                                 : context_.cost.resident(p.cost.memory, where);
      const Bytes workspace =
          counts_least() ? Bytes() : context_.cost.reserved_workspace(p.cost.memory);
      result.options.push_back({.ramp = value(weights.ramp),
                                .load = value(weights.load),
                                .memory = memory.value(),
                                .workspace = workspace.value(),
                                .layout = p.layout,
                                .strategy = p.strategy});
    }
    drop_dominated(result);
    return result;
  }

  void add_stage(int stage) {
    look(context_.watch);
    const StageSite where = site_of(context_, built_.configuration, stage);
    const StageWeights weights =
        options_.weights ? *options_.weights : context_.cost.weights(where.shape, stage);
    const StagePrices& prices = this->prices(where);
    const auto add = [&](int type, std::vector<LayerMenu>& list) {
      list.push_back(menu(type, prices, where, weights));
    };
    StageMenus menus;
    for (const int type : built_.block_types) add(type, menus.blocks);
    if (where.first()) add(context_.model.layers.front(), menus.before);
    if (where.last()) add(context_.model.layers.back(), menus.after);
    menus.transitions = transitions(prices, weights);
    const Bytes messages = counts_least() ? Bytes() : context_.cost.messages(where);
    menus.budget = (context_.cost.budget(context_.memory_limit, where) -
                    context_.cost.stage_overhead(where) - messages)
                       .value();
    const double transfer = least_transfer(context_, built_.block_types, where);
    if (!where.last()) least_.add_transfer(transfer);
    menus.ramp = weights.ramp.transfer * transfer;
    menus.load = weights.load.transfer * transfer;
    built_.problem.stages.push_back(std::move(menus));
  }

  // Where memory is known by moments, what is short-lived may be gone by the moment that layers
  // share.
  bool counts_least() const { return options_.least_memory && context_.cost.knows_moments(); }

  // A change of layout moves the activation on the way forward and its gradient on the way back.
  static Transitions transitions(const StagePrices& prices, const StageWeights& weights) {
    Transitions table(prices.layouts);
    for (int from = 0; from < prices.layouts; ++from)
      for (int to = 0; to < prices.layouts; ++to) {
        const double t = prices.change(from, to);
        table.set(from, to, weights.ramp(t, t, 0, 0, 0), weights.load(t, t, 0, 0, 0));
      }
    return table;
  }

  const SearchContext& context_;
  const TreeBranch& branch_;
  const ProblemOptions& options_;
  StrategyList list_;
  LeastPass least_;
  BuiltProblem built_;
  std::map<StageClass, StagePrices> prices_;
};

}  // namespace

BuiltProblem build_problem(const SearchContext& context, const TreeBranch& branch,
                           const Configuration& configuration, const ProblemOptions& options) {
  return ProblemBuilder(context, branch, configuration, options).build();
}

double ideal_bound(const SearchContext& context, const Configuration& c) {
  std::vector<int> block_types;
  PipelineProblem problem = empty_problem(context, c, block_types);
  LeastPass least(context);
  for (int stage = 0; stage < c.shape.stages; ++stage) {
    look(context.watch);
    const StageSite where = site_of(context, c, stage);
    const StageWeights weights = context.cost.weights(c.shape, stage);
    const auto menu = [&](int type) {
      const LayerTime t = context.cost.least_compute(type, where);
      least.include(type, t);
      const auto value = [&](const TimeWeights& w) {
        return w(t.forward(), t.backward_input(), t.backward_weight(), 0, 0);
      };
      return LayerMenu{{{.ramp = value(weights.ramp), .load = value(weights.load)}}};
    };
    StageMenus menus;
    for (const int type : block_types) menus.blocks.push_back(menu(type));
    if (where.first()) menus.before.push_back(menu(context.model.layers.front()));
    if (where.last()) menus.after.push_back(menu(context.model.layers.back()));
    menus.budget = std::numeric_limits<std::int64_t>::max();
    if (!where.last()) least.add_transfer(least_transfer(context, block_types, where));
    problem.stages.push_back(std::move(menus));
  }
  return std::max(pipeline_bound(problem), least.time(c.shape));
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
