#include "planner/search/best_uniform.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "planner/plan/legal.h"
#include "planner/search/uniform_plans.h"

namespace braid {

namespace {

bool runs_in_megatron(const Configuration& c, int blocks) {
  return c.order == MeshOrder::pp_dp_cp_tp && blocks % (c.shape.stages * c.shape.chunks) == 0 &&
         (c.shape.schedule == ScheduleKind::one_f_one_b ||
          c.shape.schedule == ScheduleKind::interleaved);
}

bool runs_in_megatron(const Strategy& s) {
  return s.tp_kind == TensorKind::megatron && (s.zero == Zero::none || s.zero == Zero::optimizer);
}

// Seconds that the first stage's blocks compute and communicate in an iteration: no plan of this
// configuration and strategy is faster. None where a block cannot be split so.
std::optional<double> first_stage_bound(const SearchContext& context, const Configuration& c,
                                        const Strategy& s) {
  const Mesh mesh{context.cluster.num_devices(), c.shape.stages, c.order};
  const StageSite first{mesh, c.shape, 0, c.micro_batch};
  const int blocks = (context.model.num_layers() - 2) / c.shape.stages;
  double sum = 0, pass = 0;
  int priced = -1;
  for (int layer = 1; layer <= blocks; ++layer) {
    const int type = context.model.layers[static_cast<std::size_t>(layer)];
    if (type != priced) {
      if (strategy_fault(context.model.type_of(layer).shape, s, c.micro_batch)) return std::nullopt;
      pass = context.cost.layer(type, s, first).time.micro_batch();
      priced = type;
    }
    sum += pass;
  }
  return sum * c.shape.micro_batches;
}

}  // namespace

BestUniform best_uniform(const SearchContext& context, const DecisionTree& tree) {
  struct Candidate {
    double bound;
    const Configuration* configuration;
  };
  const int blocks = context.model.num_layers() - 2;
  BestUniform result;
  double limit = std::numeric_limits<double>::infinity();
  std::int64_t priced = 0;
  const auto bounded = [&] {
    std::vector<Candidate> candidates;
    for (const Configuration& c : tree.configurations)
      if (runs_in_megatron(c, blocks))
        candidates.push_back({without_ties(ideal_bound(context, c), c.shape.stages), &c});
    std::ranges::stable_sort(candidates, {}, &Candidate::bound);
    return candidates;
  };
  const auto explore = [&](const Configuration* configuration) {
    const TreeBranch& branch = branch_of(tree, configuration->shape.stages);
    for (const Strategy& s : kept_strategies(branch)) {
      look(context.watch);
      if (!runs_in_megatron(s) || !context.cost.prices(s)) continue;
      const auto least = first_stage_bound(context, *configuration, s);
      if (!least || *least >= limit) continue;
      auto found = uniform_plan(context, branch, *configuration, s, limit, priced);
      if (!found || found->plan.prediction.iteration.value() >= limit) continue;
      limit = found->plan.prediction.iteration.value();
      result.plan = std::move(found);
    }
  };
  result.complete = unless_stopped([&] {
    for (const auto& [bound, configuration] : bounded()) {
      if (bound >= limit) break;
      explore(configuration);
    }
  });
  return result;
}

}  // namespace braid
