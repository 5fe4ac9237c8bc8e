#include "planner/search/exact_search.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/core/parallel.h"
#include "planner/plan/legal.h"
#include "planner/search/balance.h"

namespace braid {

namespace {

// Configurations solved between two looks at the best time; fixed, so that the result does not
// depend on the number of threads.
constexpr std::size_t kWave = 8;
constexpr std::size_t kBoundWave = 64;
// Frontiers beyond these go on with their best points; what bounds have proven then stands.
constexpr std::size_t kMostPoints = 10000;
constexpr std::size_t kStagePoints =
    500;  // many segments are searched where there are several stages
constexpr std::size_t kRelaxedPoints = 250;  // enough for a good plan
// Candidates of a frontier that may be looked at, about 0.1 us each; counted, not timed, so that
// results repeat.
constexpr std::size_t kRelaxedWork = 300'000;
constexpr std::size_t kStageWork = 1'000'000;
constexpr std::size_t kAloneWork = 20'000'000;
constexpr std::size_t kAllWork = 8'000'000;

struct Candidate {
  Configuration configuration;
  std::optional<Strategy> outside;
  double bound = 0;
  std::optional<double> quick;  // the time of a plan that was found without search
  std::int64_t priced = 0;
};

ProblemOptions options_of(const Candidate& candidate, bool within = false) {
  ProblemOptions options;
  options.within = within;
  if (candidate.outside)
    options.filter.outside = [chosen = *candidate.outside](const Strategy& s) {
      return s == chosen;
    };
  return options;
}

class Explorer {
 public:
  Explorer(const SearchContext& context, const DecisionTree& tree, const SearchOptions& options,
           std::vector<Finalist> known)
      : context_(context), tree_(tree), options_(options), finalists_(options.alternatives + 1) {
    has_known_ = !known.empty();
    for (Finalist& finalist : known) finalists_.add(std::move(finalist));
  }

  Exploration run() {
    collect();
    bound_all();
    enter_quick_plans();
    solve_promising();
    Exploration result;
    result.ranked = finalists_.ranked();
    // What was not solved is proven to be no faster than a plan that was found.
    result.lower_bound = std::min(lower_bound_, finalists_.best().value_or(kForever).value());
    result.statistics = statistics_;
    return result;
  }

 private:
  BuiltProblem build(const Candidate& candidate) const {
    return build(candidate, options_of(candidate));
  }
  BuiltProblem build(const Candidate& candidate, const ProblemOptions& options) const {
    const TreeBranch& branch = branch_of(tree_, candidate.configuration.shape.stages);
    return build_problem(context_, branch, candidate.configuration, options);
  }

  void collect() {
    for (const Configuration& c : tree_.configurations) {
      if (!context_.cost.outside_shares_strategy()) {
        candidates_.push_back({.configuration = c, .outside = std::nullopt, .quick = std::nullopt});
        continue;
      }
      const TreeBranch& branch = branch_of(tree_, c.shape.stages);
      for (const Strategy& s : shared_outside_strategies(context_, branch, c))
        candidates_.push_back({.configuration = c, .outside = s, .quick = std::nullopt});
    }
    statistics_.configurations = static_cast<int>(candidates_.size());
  }

  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  void report(int done) const {
    if (options_.progress)
      options_.progress({done, static_cast<int>(candidates_.size()), finalists_.best()});
  }

  void bound_all() {
    for (std::size_t begin = 0; begin < candidates_.size(); begin += kBoundWave) {
      const std::size_t count = std::min(kBoundWave, candidates_.size() - begin);
      parallel_for(count, options_.threads, [&](std::size_t i) {
        Candidate& candidate = candidates_[begin + i];
        const BuiltProblem built = build(candidate);
        const double bound = pipeline_bound(built.problem);
        candidate.bound = without_ties(bound, candidate.configuration.shape.stages);
        if (const auto solution = quick_pipeline(built.problem)) candidate.quick = solution->time;
        candidate.priced = built.priced;
        if (!context_.only_where_more_memory_helps) return;
        const BuiltProblem strict = build(candidate, options_of(candidate, true));
        if (bound >= pipeline_bound(strict.problem)) candidate.bound = kForever.value();
      });
      report(0);
    }
    for (const Candidate& candidate : candidates_) statistics_.strategies += candidate.priced;
    std::ranges::stable_sort(candidates_, {}, &Candidate::bound);
  }

  // Quick plans, the most promising first, set the time to beat.
  void enter_quick_plans() {
    std::vector<const Candidate*> quick;
    for (const Candidate& candidate : candidates_)
      if (candidate.quick) quick.push_back(&candidate);
    std::ranges::stable_sort(quick, {}, [](const Candidate* c) { return *c->quick; });
    for (const Candidate* candidate : quick) {
      if (*candidate->quick >= finalists_.limit(candidate->configuration.shape)) continue;
      auto found = find_fitting(context_, build(*candidate), [](const BuiltProblem& built) {
        return quick_pipeline(built.problem);
      });
      if (found) finalists_.add(std::move(*found));
    }
  }

  // What one configuration has to offer.
  struct Solved {
    std::vector<Finalist> finalists;
    double bound = std::numeric_limits<double>::infinity();  // of its plans below the limit
    std::size_t work = 0;
  };

  // First the relaxations, which are quick and prove most configurations too slow; then exactly,
  // below what they found.
  Solved solve(const Candidate& candidate) const {
    Solved solved;
    double limit = finalists_.limit(candidate.configuration.shape);
    // Where embedding and head multiply the candidates, or plans are known, alternatives stay as
    // they were found quickly.
    if (candidate.outside || has_known_)
      limit = std::min(limit, finalists_.best().value_or(kForever).value());
    if (candidate.bound >= limit) return solved;
    const bool alone = candidate.configuration.shape.stages == 1;
    const BuiltProblem built = build(candidate);
    const auto proven = [&](double time) {
      return without_ties(time, candidate.configuration.shape.stages);
    };
    double misfit = std::numeric_limits<double>::infinity();  // nothing is proven beyond
    std::optional<std::pair<PipelineSolution, Plan>> unfit;   // the last of these
    const auto enter = [&](PipelineSolution solution) {
      solution.time = time_of(built.problem, solution);
      solved.finalists.push_back(finalist_of(context_, built, solution));
      double& least = solved.finalists.back().fits ? limit : misfit;
      least = std::min(least, solution.time);
      if (const Finalist& entered = solved.finalists.back(); !entered.fits)
        unfit = {std::move(solution), entered.plan};
    };
    // No plan lies below the limit, which is the time of one that was found, if any was.
    const auto conclude = [&] {
      solved.bound = solved.finalists.empty()
                         ? std::numeric_limits<double>::infinity()
                         : std::max(solved.bound, proven(std::min(limit, misfit)));
      return solved;
    };
    solved.bound = candidate.bound;
    for (const PipelineProblem& simpler : relaxations(built.problem)) {
      const auto bound = bound_below(simpler, limit);
      if (!bound) return conclude();
      solved.bound = std::max(solved.bound, proven(*bound));
      const auto found = search_pipeline(simpler, {limit, alone ? kMostPoints : kRelaxedPoints,
                                                   alone ? kAloneWork : kRelaxedWork});
      if (!found.solution && found.complete) return conclude();
      if (found.complete) solved.bound = std::max(solved.bound, proven(found.solution->time));
      if (found.solution) enter(*found.solution);
      if (solved.bound >= proven(limit)) return solved;  // what was found meets the bound
    }
    // What would be fastest needs more than there is: the fastest whose layers add up to less.
    if (misfit < limit) {
      BuiltProblem less = build(candidate, options_of(candidate, true));
      if (context_.beyond == Bytes()) tighten(less.problem, unfit->first, unfit->second);
      const auto find = [&](const BuiltProblem& strict) {
        return search_pipeline(
                   alone ? strict.problem : relaxations(strict.problem).front(),
                   {limit, alone ? kMostPoints : kRelaxedPoints, alone ? kAloneWork : kRelaxedWork})
            .solution;
      };
      if (auto found = find_fitting(context_, std::move(less), find)) {
        if (found->fits) limit = std::min(limit, found->plan.prediction.iteration.value());
        solved.finalists.push_back(std::move(*found));
      }
    }
    // Good enough for an alternative: only what could win is worth the rest.
    if (const auto best = finalists_.best(); best && solved.bound >= best->value()) return solved;
    // The bound is not the simulator's time, so others may be faster than the plan that meets it:
    // one that expects every stage's reduction to show, and balanced ones.
    if (!alone) {
      ProblemOptions expecting = options_of(candidate);
      expecting.late_reduce = true;
      const BuiltProblem late = build(candidate, expecting);
      const auto found = search_pipeline(relaxations(late.problem).front(),
                                         {kForever.value(), kRelaxedPoints, kRelaxedWork});
      if (found.solution) solved.finalists.push_back(finalist_of(context_, late, *found.solution));
      const bool balances = candidate.configuration.shape.schedule == ScheduleKind::one_f_one_b &&
                            built.problem.cuts.empty();
      for (const BuiltProblem* view : {&built, &late}) {
        if (!balances) break;
        for (const PipelineSolution& solution : balanced_solutions(view->problem))
          solved.finalists.push_back(finalist_of(context_, *view, solution));
      }
    }
    if (load_decides(built.problem) || work_ > kAllWork) return solved;
    const auto exact = search_pipeline(built.problem, {limit, alone ? kMostPoints : kStagePoints,
                                                       alone ? kAloneWork : kStageWork});
    solved.work += exact.work;
    if (exact.solution) enter(*exact.solution);
    return exact.complete ? conclude() : solved;
  }

  void solve_promising() {
    lower_bound_ = std::numeric_limits<double>::infinity();
    std::size_t done = 0;
    while (done < candidates_.size()) {
      const std::size_t count = std::min(kWave, candidates_.size() - done);
      if (stopped()) {
        statistics_.interrupted = true;
        lower_bound_ = std::min(lower_bound_, candidates_[done].bound);
        return;
      }
      std::vector<Solved> found(count);
      parallel_for(count, options_.threads,
                   [&](std::size_t i) { found[i] = solve(candidates_[done + i]); });
      for (Solved& solved : found) {
        statistics_.solved += solved.finalists.empty() ? 0 : 1;
        lower_bound_ = std::min(lower_bound_, solved.bound);
        work_ += solved.work;
        for (Finalist& finalist : solved.finalists) finalists_.add(std::move(finalist));
      }
      done += count;
      report(static_cast<int>(done));
    }
  }

  const SearchContext& context_;
  const DecisionTree& tree_;
  const SearchOptions& options_;
  std::vector<Candidate> candidates_;
  Finalists finalists_;
  bool has_known_ = false;
  double lower_bound_ = 0;
  std::size_t work_ = 0;  // of exact searches
  SearchStatistics statistics_;
};

}  // namespace

std::vector<Strategy> shared_outside_strategies(const SearchContext& context,
                                                const TreeBranch& branch,
                                                const Configuration& configuration) {
  std::vector<Strategy> shared;
  const LayerShape& embedding = context.model.type_of(0).shape;
  const LayerShape& head = context.model.type_of(context.model.num_layers() - 1).shape;
  for (const Strategy& s : kept_strategies(branch))
    if (s.recompute == Recompute::none && context.cost.prices(s) &&
        !strategy_fault(embedding, s, configuration.micro_batch) &&
        !strategy_fault(head, s, configuration.micro_batch))
      shared.push_back(s);
  return shared;
}

Exploration explore_exactly(const SearchContext& context, const DecisionTree& tree,
                            const SearchOptions& options, std::vector<Finalist> known) {
  return Explorer(context, tree, options, std::move(known)).run();
}

}  // namespace braid
