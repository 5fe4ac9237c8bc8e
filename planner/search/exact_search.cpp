#include "planner/search/exact_search.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <span>
#include <utility>

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
constexpr std::size_t kFitWork = 3'000'000;  // of one attempt to make a single stage fit
constexpr std::size_t kAllWork = 4'000'000;
constexpr std::size_t kFarWork = 2'000'000;  // where heuristics advise against
// Of the best plan over its bound, as a fraction, at which other algorithms are asked first.
constexpr double kWideGap = 0.01;
constexpr double kVeryWideGap = 0.1;  // likewise, when the most promising are bounded
constexpr double kProven = 1 - 1e-6;  // of the best: bounds above it leave nothing open

struct Candidate {
  Configuration configuration;
  std::optional<Strategy> outside;
  bool advised_against = false;     // by a heuristic: looked at behind the others
  double bound = 0;                 // seconds that none of its plans is faster than
  std::optional<double> quick;      // the time of a plan that was found without search
  double found = kForever.value();  // the time of its fastest plan
  bool solved = false;
  bool settled = false;  // an exact search would add nothing
  std::int64_t priced = 0;
};

enum class Memory {
  least,  // what no plan can do without: for bounds
  safe,   // what layers need one by one: for plans that fit
};

ProblemOptions options_of(const Candidate& candidate, Memory memory) {
  ProblemOptions options;
  options.least_memory = memory == Memory::least;
  if (candidate.outside)
    options.filter.outside = [chosen = *candidate.outside](const Strategy& s) {
      return s == chosen;
    };
  return options;
}

class Explorer {
 public:
  Explorer(const SearchContext& context, const DecisionTree& tree, const SearchOptions& options,
           ExactStart start)
      : context_(context),
        prices_({.model = context.model,
                 .cost = context.cost,
                 .drop_covered_layouts = context.drop_covered_layouts,
                 .watch = context.watch}),
        tree_(tree),
        options_(options),
        finalists_(options.alternatives + 1),
        start_(std::move(start)) {
    context_.prices = &prices_;
    for (Finalist& finalist : start_.known) finalists_.add(std::move(finalist));
  }

  Exploration run() {
    collect();
    enter_phase("bound configurations");
    bound_all();
    ask_others(kWideGap);
    enter_phase("search configurations");
    solve_promising();
    Exploration result;
    result.ranked = finalists_.ranked();
    // What was not solved is proven to be no faster than a plan that was found.
    result.lower_bound = std::min(lower_bound_, best());
    result.open = open_configurations();
    result.asked_others = asked_others_;
    for (const Candidate& candidate : candidates_)
      statistics_.open += candidate.bound < best() * kProven ? 1 : 0;
    result.statistics = statistics_;
    result.statistics.strategies += prices_.priced();
    return result;
  }

 private:
  BuiltProblem build(const Candidate& candidate, Memory memory) const {
    return build(candidate, options_of(candidate, memory));
  }
  BuiltProblem build(const Candidate& candidate, const ProblemOptions& options) const {
    const TreeBranch& branch = branch_of(tree_, candidate.configuration.shape.stages);
    return build_problem(context_, branch, candidate.configuration, options);
  }

  double best() const { return finalists_.best().value_or(kForever).value(); }
  // Seconds that no plan of the tree is faster than.
  double bound() const {
    double least = best();
    for (const Candidate& candidate : candidates_) least = std::min(least, candidate.bound);
    return least;
  }
  std::vector<Configuration> open_configurations() const {
    std::vector<Configuration> open;
    for (const Candidate& candidate : candidates_)
      if (candidate.bound < best()) open.push_back(candidate.configuration);
    return open;
  }

  // A plan of this configuration must be faster than this to matter.
  double limit_of(const Candidate& candidate) const {
    // Where embedding and head multiply the candidates, or plans are known, alternatives stay as
    // they were found quickly.
    const bool must_win =
        candidate.outside || start_.alternatives_known || candidate.advised_against;
    return must_win ? best() : finalists_.limit(candidate.configuration.shape);
  }

  void collect() {
    for (const Configuration& c : tree_.configurations) {
      Candidate candidate{.configuration = c,
                          .outside = std::nullopt,
                          .advised_against = advice_against(c).has_value(),
                          .quick = std::nullopt};
      if (!context_.cost.outside_shares_strategy()) {
        candidates_.push_back(candidate);
        continue;
      }
      const TreeBranch& branch = branch_of(tree_, c.shape.stages);
      for (const Strategy& s : shared_outside_strategies(context_, branch, c)) {
        candidate.outside = s;
        candidates_.push_back(candidate);
      }
    }
    statistics_.configurations = static_cast<int>(candidates_.size());
  }

  bool stopped() {
    statistics_.interrupted |= context_.watch != nullptr && context_.watch->due();
    return statistics_.interrupted;
  }
  // Whether the gap that the user asked for is reached.
  bool good_enough() {
    if (options_.enough_gap > 0 && best() < kForever.value() &&
        best() <= bound() * (1 + options_.enough_gap))
      statistics_.ending = Ending::gap;
    return statistics_.ending == Ending::gap;
  }

  // Calls work(i) for each i below `count`, on several threads. What is stopped leaves its
  // candidate as it was.
  template <class Work>
  void for_each(std::size_t count, Work work) {
    std::atomic<bool> cut = false;
    parallel_for(count, options_.threads, [&](std::size_t i) {
      if (!unless_stopped([&] { work(i); })) cut = true;
    });
    statistics_.interrupted |= cut;
  }

  void enter_phase(std::string_view phase) const {
    if (context_.watch != nullptr) context_.watch->enter(phase);
  }
  void report() const {
    if (context_.watch == nullptr) return;
    if (const auto best = finalists_.best()) context_.watch->found(*best);
    if (start_.whole_space) context_.watch->prove(Seconds(bound()));
    context_.watch->report();
  }

  // First what heuristics advise, the least ideal bound first: what is found quickly there spares
  // the others all but that bound.
  void bound_all() {
    for_each(candidates_.size(), [&](std::size_t i) {
      Candidate& candidate = candidates_[i];
      candidate.bound = without_ties(ideal_bound(context_, candidate.configuration),
                                     candidate.configuration.shape.stages);
    });
    std::ranges::stable_sort(
        candidates_, {}, [](const Candidate& c) { return std::pair(c.advised_against, c.bound); });
    for (std::size_t begin = 0; begin < candidates_.size() && !stopped() && !good_enough();
         begin += kBoundWave) {
      const std::size_t count = std::min(kBoundWave, candidates_.size() - begin);
      for_each(count, [&](std::size_t i) { look_at(candidates_[begin + i]); });
      statistics_.interrupted |=
          !unless_stopped([&] { enter_quick_plans(std::span(candidates_).subspan(begin, count)); });
      report();
      if (begin == 0) ask_others(kVeryWideGap);
    }
    for (const Candidate& candidate : candidates_) statistics_.strategies += candidate.priced;
    std::ranges::stable_sort(candidates_, {}, &Candidate::bound);
  }

  void look_at(Candidate& candidate) const {
    const double limit = limit_of(candidate);
    if (candidate.bound >= limit) return;
    const BuiltProblem built = build(candidate, Memory::least);
    const double bound = std::max(pipeline_bound(built.problem), built.least_time);
    candidate.bound =
        std::max(candidate.bound, without_ties(bound, candidate.configuration.shape.stages));
    candidate.priced = built.priced;
    if (candidate.bound >= limit) return;
    const BuiltProblem safe = build(candidate, Memory::safe);
    if (const auto solution = quick_pipeline(safe.problem)) candidate.quick = solution->time;
  }

  // The most promising first, to set the time to beat.
  void enter_quick_plans(std::span<const Candidate> candidates) {
    std::vector<const Candidate*> quick;
    for (const Candidate& candidate : candidates)
      if (candidate.quick) quick.push_back(&candidate);
    std::ranges::stable_sort(quick, {}, [](const Candidate* c) { return *c->quick; });
    for (const Candidate* candidate : quick) {
      if (*candidate->quick >= limit_of(*candidate)) continue;
      auto found =
          find_fitting(context_, build(*candidate, Memory::safe),
                       [](const BuiltProblem& built) { return quick_pipeline(built.problem); });
      if (found) finalists_.add(std::move(*found));
    }
  }

  void ask_others(double gap) {
    if (!start_.others || asked_others_ || stopped() || good_enough() ||
        best() <= bound() * (1 + gap))
      return;
    for (Finalist& finalist : start_.others(open_configurations(), best()))
      finalists_.add(std::move(finalist));
    asked_others_ = true;
    report();
  }

  // What one configuration has to offer.
  struct Solved {
    std::vector<Finalist> finalists;
    double bound = kForever.value();  // of its plans below the limit
    bool settled = true;              // an exact search would add nothing
    std::size_t work = 0;
  };

  // Enters what a search of one configuration finds, and keeps the times that bound it.
  class Entry {
   public:
    Entry(const Explorer& explorer, const Candidate& candidate, double limit)
        : explorer_(explorer), stages_(candidate.configuration.shape.stages), limit_(limit) {
      solved_.bound = candidate.bound;
    }

    double limit() const { return limit_; }
    // Whether the fastest solutions need more than there is.
    bool tight() const { return misfit_ < limit_; }
    const std::optional<std::pair<PipelineSolution, Plan>>& unfit() const { return unfit_; }
    double bound() const { return solved_.bound; }

    void enter(const BuiltProblem& built, PipelineSolution solution) {
      solution.time = time_of(built.problem, solution);
      Finalist found = finalist_of(explorer_.context_, built, solution);
      double& least = found.fits ? limit_ : misfit_;
      least = std::min(least, solution.time);
      if (!found.fits) unfit_ = {std::move(solution), found.plan};
      solved_.finalists.push_back(std::move(found));
    }
    void enter(std::optional<Finalist> found) {
      if (!found) return;
      if (found->fits) limit_ = std::min(limit_, found->plan.prediction.iteration.value());
      solved_.finalists.push_back(std::move(*found));
    }
    // No solution is faster than `time`.
    void prove(double time) { solved_.bound = std::max(solved_.bound, proven(time)); }
    bool meets_bound() const { return solved_.bound >= proven(limit_); }
    PipelineResult counted(PipelineResult found) {
      solved_.work += found.work;
      return found;
    }

    // No plan lies below the limit, which is the time of one that was found, if any was.
    Solved conclude() {
      if (solved_.finalists.empty())
        solved_.bound = kForever.value();
      else
        prove(std::min(limit_, misfit_));
      return std::move(solved_);
    }
    Solved leave(bool settled) {
      solved_.settled = settled;
      return std::move(solved_);
    }

   private:
    double proven(double time) const { return without_ties(time, stages_); }

    const Explorer& explorer_;
    int stages_;
    double limit_;
    double misfit_ = kForever.value();                        // nothing is proven beyond
    std::optional<std::pair<PipelineSolution, Plan>> unfit_;  // the last of these
    Solved solved_;
  };

  static bool is_alone(const Candidate& candidate) {
    return candidate.configuration.shape.stages == 1;
  }

  PipelineLimits quick_limits(const Candidate& candidate, double limit) const {
    if (!is_alone(candidate) || context_.any_plan) return {limit, kRelaxedPoints, kRelaxedWork};
    return {limit, kMostPoints, candidate.advised_against ? kStageWork : kAloneWork};
  }

  // The relaxations, which are quick and prove most configurations too slow, and plans near what
  // they find.
  Solved solve_quickly(const Candidate& candidate) const {
    const double limit = limit_of(candidate);
    if (candidate.bound >= limit) return {};
    const BuiltProblem built = build(candidate, Memory::least);
    Entry entry(*this, candidate, limit);
    for (const PipelineProblem& simpler : relaxations(built.problem)) {
      const auto bound = bound_below(simpler, entry.limit());
      if (!bound) return entry.conclude();
      entry.prove(*bound);
      const auto found =
          entry.counted(search_pipeline(simpler, quick_limits(candidate, entry.limit())));
      if (!found.solution && found.complete) return entry.conclude();
      if (found.complete) entry.prove(found.solution->time);
      if (found.solution) entry.enter(built, *found.solution);
      if (entry.meets_bound()) return entry.leave(true);
    }
    if (entry.tight()) find_what_fits(candidate, built, entry);
    // Good enough for an alternative: only what could win is worth the rest.
    if (entry.bound() >= best()) return entry.leave(true);
    if (!is_alone(candidate)) find_near(candidate, built, entry);
    return entry.leave(load_decides(built.problem));
  }

  // Its bound alone, by the relaxations' bounds.
  Solved bound_only(const Candidate& candidate) const {
    const double limit = limit_of(candidate);
    if (candidate.bound >= limit) return {};
    Entry entry(*this, candidate, limit);
    for (const PipelineProblem& simpler : relaxations(build(candidate, Memory::least).problem)) {
      const auto bound = bound_below(simpler, entry.limit());
      if (!bound) return entry.conclude();
      entry.prove(*bound);
    }
    return entry.leave(false);
  }

  // The fastest solution does not fit: the fastest by the safe sum of memory, and by the least sum
  // with so much less memory as that solution lacks.
  void find_what_fits(const Candidate& candidate, const BuiltProblem& built, Entry& entry) const {
    const auto find = [&](const BuiltProblem& less) {
      PipelineLimits limits = quick_limits(candidate, entry.limit());
      limits.most_work = std::min(limits.most_work, kFitWork);
      return entry
          .counted(search_pipeline(
              is_alone(candidate) ? less.problem : relaxations(less.problem).front(), limits))
          .solution;
    };
    entry.enter(find_fitting(context_, build(candidate, Memory::safe), find));
    BuiltProblem tightened = built;
    tighten(tightened.problem, entry.unfit()->first, entry.unfit()->second);
    entry.enter(find_fitting(context_, std::move(tightened), find));
  }

  // The bound is not the simulator's time, so others may be faster than the plan that meets it: one
  // that expects every stage's reduction to show, and balanced ones.
  void find_near(const Candidate& candidate, const BuiltProblem& built, Entry& entry) const {
    ProblemOptions expecting = options_of(candidate, Memory::safe);
    expecting.late_reduce = true;
    const BuiltProblem late = build(candidate, expecting);
    const auto found = entry.counted(search_pipeline(
        relaxations(late.problem).front(), {kForever.value(), kRelaxedPoints, kRelaxedWork}));
    if (found.solution) entry.enter(finalist_of(context_, late, *found.solution));
    if (candidate.configuration.shape.schedule != ScheduleKind::one_f_one_b ||
        !built.problem.cuts.empty())
      return;
    for (const BuiltProblem* view : {&built, &late})
      for (const PipelineSolution& solution : balanced_solutions(view->problem))
        entry.enter(finalist_of(context_, *view, solution));
  }

  Solved solve_exactly(const Candidate& candidate) const {
    const double limit = limit_of(candidate);
    if (candidate.bound >= limit) return {};
    const BuiltProblem built = build(candidate, Memory::least);
    Entry entry(*this, candidate, limit);
    const bool alone = is_alone(candidate);
    const auto search = [&](const BuiltProblem& problem) {
      const auto found = entry.counted(search_pipeline(
          problem.problem,
          {entry.limit(), alone ? kMostPoints : kStagePoints, alone ? kAloneWork : kStageWork}));
      if (found.solution) entry.enter(problem, *found.solution);
      return found.complete;
    };
    const bool complete = search(built);
    if (entry.tight()) search(build(candidate, Memory::safe));
    return complete ? entry.conclude() : entry.leave(true);
  }

  // Solves candidates in waves, as long as `go_on` says, and enters what they find.
  template <class Solve, class GoOn>
  void solve_each(std::vector<Candidate*> candidates, Solve solve, GoOn go_on) {
    for (std::size_t done = 0; done < candidates.size() && go_on();) {
      if (stopped() || good_enough()) return;
      const std::size_t count = std::min(kWave, candidates.size() - done);
      std::vector<std::optional<Solved>> found(count);
      for_each(count, [&](std::size_t i) { found[i] = solve(*candidates[done + i]); });
      for (std::size_t i = 0; i < count; ++i) {
        if (!found[i]) continue;
        Candidate& candidate = *candidates[done + i];
        Solved& solved = *found[i];
        candidate.solved = true;
        candidate.settled = solved.settled;
        candidate.bound = std::max(candidate.bound, solved.bound);
        for (Finalist& finalist : solved.finalists) {
          if (finalist.fits)
            candidate.found = std::min(candidate.found, finalist.plan.prediction.iteration.value());
          finalists_.add(std::move(finalist));
        }
        work_ += solved.work;
      }
      done += count;
      report();
    }
  }

  void solve_promising() {
    std::vector<Candidate*> advised;
    std::vector<Candidate*> others;
    advised.reserve(candidates_.size());
    others.reserve(candidates_.size());
    for (Candidate& candidate : candidates_)
      (candidate.advised_against ? others : advised).push_back(&candidate);
    const auto always = [] { return true; };
    const auto quickly = [&](const Candidate& c) { return solve_quickly(c); };
    solve_each(advised, quickly, always);
    if (context_.any_plan) return;  // more work would find a faster one
    work_ = 0;
    solve_each(others, quickly, [&] { return work_ <= kFarWork; });
    std::erase_if(others, [](const Candidate* c) { return c->solved; });
    solve_each(
        others, [&](const Candidate& c) { return bound_only(c); }, always);
    work_ = 0;
    const auto open = [&](auto key) {
      std::vector<Candidate*> list;
      for (Candidate& candidate : candidates_)
        if (!candidate.settled && candidate.bound < best()) list.push_back(&candidate);
      std::ranges::stable_sort(list, {}, key);
      return list;
    };
    // Half of the work for where plans are fastest, the rest for where the bound is least.
    const auto exactly = [&](const Candidate& c) { return solve_exactly(c); };
    solve_each(open([](const Candidate* c) { return c->found; }), exactly,
               [&] { return work_ <= kAllWork / 2; });
    solve_each(open([](const Candidate* c) { return c->bound; }), exactly,
               [&] { return work_ <= kAllWork; });
    for (const Candidate& candidate : candidates_) {
      statistics_.solved += candidate.solved && candidate.found < kForever.value() ? 1 : 0;
      lower_bound_ = std::min(lower_bound_, candidate.bound);
    }
  }

  SearchContext context_;
  PriceCache prices_;
  const DecisionTree& tree_;
  const SearchOptions& options_;
  std::vector<Candidate> candidates_;
  Finalists finalists_;
  ExactStart start_;
  bool asked_others_ = false;
  double lower_bound_ = kForever.value();
  std::size_t work_ = 0;  // candidates looked at in this phase
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
        branch.fixed.allows(embedding, s, configuration.micro_batch) &&
        branch.fixed.allows(head, s, configuration.micro_batch) &&
        !strategy_fault(embedding, s, configuration.micro_batch) &&
        !strategy_fault(head, s, configuration.micro_batch))
      shared.push_back(s);
  return shared;
}

Exploration explore_exactly(const SearchContext& context, const DecisionTree& tree,
                            const SearchOptions& options, ExactStart start) {
  return Explorer(context, tree, options, std::move(start)).run();
}

}  // namespace braid
