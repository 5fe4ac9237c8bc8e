#include "planner/search/galvatron_search.h"

#include <algorithm>
#include <limits>
#include <map>

#include "planner/search/uniform_plans.h"

namespace braid {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMostTensor = 8;

// What its candidates are made of, whatever the cost model: no rings, no experts apart, ZeRO-3 only
// where data parallelism replicates, all or nothing recomputed.
bool is_its_own(const Strategy& s) {
  return s.tp_kind != TensorKind::spatial_temporal && s.cp == 1 && s.ep == 1 &&
         s.tp <= kMostTensor && (s.dp > 1 || s.zero == Zero::none) &&
         s.recompute != Recompute::selective;
}

enum class Mode { tensor_only, ulysses_only, both };

// One task of its outer loop.
struct Task {
  Mode mode;
  int widest;
  Zero replicas;  // of layers that are replicated and not under ZeRO-3

  bool offers(const Strategy& s) const {
    if (s.tp > widest) return false;
    if (s.zero != (s.dp > 1 ? replicas : Zero::none) && s.zero != Zero::parameters) return false;
    const bool ulysses = s.tp_kind == TensorKind::ulysses;
    switch (mode) {
      case Mode::tensor_only:
        return !ulysses;
      case Mode::ulysses_only:
        return ulysses || s.tp == 1;
      case Mode::both:
        return true;
    }
    return false;
  }
};

// The kind of data parallelism beside ZeRO-3 is a setting for all layers. Its engine was run with
// ZeRO-2, and its formulas know no other; the papers have plain data parallelism.
std::vector<Zero> replica_kinds(CostKind cost) {
  if (cost == CostKind::galvatron) return {Zero::gradients};
  return {Zero::gradients, Zero::none};
}

std::vector<Task> tasks_of(const Configuration& c, int stage_devices, CostKind cost) {
  const auto samples = static_cast<int>(std::min<std::int64_t>(c.micro_batch, stage_devices));
  const int least = std::max(1, stage_devices / samples);
  const int most = std::min(stage_devices, kMostTensor);
  std::vector<Task> tasks;
  for (const Mode mode : {Mode::tensor_only, Mode::ulysses_only, Mode::both})
    for (int widest = 1; widest <= most; widest *= 2) {
      if (widest < least || (mode == Mode::ulysses_only && 2 * widest <= most)) continue;
      for (const Zero replicas : replica_kinds(cost)) tasks.push_back({mode, widest, replicas});
    }
  return tasks;
}

class GalvatronExplorer {
 public:
  GalvatronExplorer(const SearchContext& context, const DecisionTree& tree,
                    const SearchOptions& options)
      : context_(context), tree_(tree), options_(options), finalists_(options.alternatives + 1) {}

  Exploration run() {
    statistics_.interrupted = !unless_stopped([&] {
      for (const Configuration& c : tree_.configurations) explore(c);
    });
    return {.ranked = finalists_.ranked(), .statistics = statistics_, .open = {}};
  }

 private:
  StageSite site_of(const Configuration& c, int stage) const {
    return {
        {context_.cluster.num_devices(), c.shape.stages, c.order}, c.shape, stage, c.micro_batch};
  }

  void explore(const Configuration& c) {
    look(context_.watch);
    if (c.shape.schedule != ScheduleKind::one_f_one_b || c.order != MeshOrder::pp_dp_cp_tp) return;
    const std::vector<Task> tasks =
        tasks_of(c, context_.cluster.num_devices() / c.shape.stages, options_.cost);
    if (context_.cost.knows_moments()) enter_single_strategies(c, tasks);
    for (const Task& task : tasks) explore(c, task);
    if (context_.watch != nullptr && !finalists_.empty()) context_.watch->found(*finalists_.best());
  }

  double limit_of(const Configuration& c) const {
    return std::min(finalists_.limit(c.shape), context_.faster_than);
  }

  // Its engine's recurrence adds up one micro-batch with the volume of the gradients, as if each
  // paid for the reduction. At other prices it sees the iteration.
  TimeWeights recurrence_weights(int micro_batches) const {
    const double times = options_.cost == CostKind::galvatron ? 1 : micro_batches;
    return {times, times, times, 1, 1, 0};
  }

  // An iteration takes no less than any of its stages; its engine's formula makes no such promise.
  double load_limit(const Configuration& c) const {
    if (options_.cost == CostKind::galvatron) return kInfinity;
    return limit_of(c) * (1 + 2 * kTieWeight);
  }

  // Its engine reserves the workspaces of embedding and head beside each other. As a step is played
  // they are not, and one strategy for all layers may fit that adds up to too much.
  void enter_single_strategies(const Configuration& c, const std::vector<Task>& tasks) {
    const TreeBranch& branch = branch_of(tree_, c.shape.stages);
    for (const Strategy& s : kept_strategies(branch)) {
      const auto offers = [&](const Task& task) { return task.offers(s); };
      if (!is_its_own(s) || std::ranges::none_of(tasks, offers)) continue;
      auto found = uniform_plan(context_, branch, c, s, limit_of(c), statistics_.strategies);
      if (found) finalists_.add(std::move(*found));
    }
  }

  void explore(const Configuration& c, const Task& task) {
    ++statistics_.configurations;
    const TreeBranch& branch = branch_of(tree_, c.shape.stages);
    const auto offered = [&](const Strategy& s) { return is_its_own(s) && task.offers(s); };
    ProblemOptions problem_options;
    problem_options.filter = {offered, [](const Strategy&) { return false; }};
    problem_options.weights = StageWeights{{}, recurrence_weights(c.shape.micro_batches)};
    problem_options.recurrence = true;
    BuiltProblem built = build_problem(context_, branch, c, problem_options);
    statistics_.strategies += built.priced;
    // A buffer for the task's widest group stands for those of its layers.
    if (context_.cost.sequence_buffer(task.widest, site_of(c, 0)) > Bytes())
      for (StageMenus& stage : built.problem.stages)
        for (LayerMenu& menu : stage.blocks)
          for (LayerOption& option : menu.options) option.workspace = 0;
    const std::vector<int> cuts = even_cuts(built.problem);
    std::map<std::pair<int, std::int64_t>, std::vector<SegmentPoint>> solved;
    for (const Strategy& outside : shared_outside_strategies(context_, branch, c)) {
      if (!offered(outside)) continue;
      auto found = find_fitting(context_, built, [&](BuiltProblem& problem) {
        return solve(problem, task, outside, cuts, solved);
      });
      if (!found) continue;
      ++statistics_.solved;
      finalists_.add(std::move(*found));
    }
  }

  std::optional<PipelineSolution> solve(
      BuiltProblem& built, const Task& task, const Strategy& outside, const std::vector<int>& cuts,
      std::map<std::pair<int, std::int64_t>, std::vector<SegmentPoint>>& solved) const {
    const Configuration& c = built.configuration;
    const auto strategy =
        static_cast<int>(std::ranges::find(built.strategies, outside) - built.strategies.begin());
    PipelineSolution solution;
    solution.blocks = cuts;
    int begin = 0;
    for (int stage = 0; stage < c.shape.stages; ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      StageMenus& menus = built.problem.stages[at];
      menus.before.clear();
      menus.after.clear();
      const auto layers = stage_layers(built.problem, stage, begin, cuts[at]);
      begin += cuts[at];
      const StageSite site = site_of(c, stage);
      std::int64_t budget = menus.budget;
      std::vector<int> choice;
      const auto reserve = [&](int type, std::vector<LayerMenu>& place) {
        const LayerMemory memory = context_.cost.layer(type, outside, site).memory;
        budget -= (context_.cost.resident(memory, site) + context_.cost.reserved_workspace(memory))
                      .value();
        place.push_back({{LayerOption{.strategy = strategy}}});
      };
      if (site.first()) reserve(context_.model.layers.front(), menus.before);
      if (site.last()) reserve(context_.model.layers.back(), menus.after);
      if (task.mode != Mode::ulysses_only)
        budget -= context_.cost.sequence_buffer(task.widest, site).value();

      auto [found, is_new] = solved.try_emplace({stage, budget});
      if (is_new)
        found->second = search_segment({.layers = layers,
                                        .transitions = &menus.transitions,
                                        .budget = budget,
                                        .load_limit = load_limit(c),
                                        .load_alone = true,
                                        .watch = context_.watch})
                            .points;
      if (found->second.empty()) return std::nullopt;
      SegmentPoint point = found->second.front();
      point.memory += menus.budget - budget;
      if (site.first()) point.choice.insert(point.choice.begin(), 0);
      if (site.last()) point.choice.push_back(0);
      solution.stages.push_back(std::move(point));
    }
    return solution;
  }

  const SearchContext& context_;
  const DecisionTree& tree_;
  const SearchOptions& options_;
  Finalists finalists_;
  SearchStatistics statistics_;
};

}  // namespace

bool offered_by_galvatron(const Strategy& s, CostKind cost) {
  if (!is_its_own(s)) return false;
  if (s.dp == 1 || s.zero == Zero::parameters) return true;
  return std::ranges::any_of(replica_kinds(cost), [&](Zero kind) { return s.zero == kind; });
}

Exploration explore_as_galvatron(const SearchContext& context, const DecisionTree& tree,
                                 const SearchOptions& options) {
  return GalvatronExplorer(context, tree, options).run();
}

}  // namespace braid
