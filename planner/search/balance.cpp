#include "planner/search/balance.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

namespace braid {

namespace {

using Cuts = std::vector<int>;

// A walk that goes on for longer has long passed the best compromise.
constexpr std::size_t kMostPartitions = 400;

// What the partitions p_m and p_t are balanced by: every layer under its fastest strategy, whether
// or not that fits.
class Reference {
 public:
  explicit Reference(const PipelineProblem& problem) : problem_(problem) {}

  double memory(int stage, int begin, int count) const {
    return sum(stage, begin, count,
               [](const LayerOption& o) { return static_cast<double>(o.memory); });
  }
  double time(int stage, int begin, int count) const {
    return sum(stage, begin, count, [](const LayerOption& o) { return o.load; });
  }

 private:
  template <class Value>
  double sum(int stage, int begin, int count, Value value) const {
    double total = 0;
    for (const LayerMenu* menu : stage_layers(problem_, stage, begin, count))
      if (!menu->options.empty()) total += value(fastest(*menu));
    return total;
  }
  static const LayerOption& fastest(const LayerMenu& menu) {
    return *std::ranges::min_element(menu.options, {}, &LayerOption::load);
  }

  const PipelineProblem& problem_;
};

// Cuts whose largest stage is least, by bisection over that size and filling from the left.
template <class Weight>
Cuts balanced_cuts(const PipelineProblem& problem, Weight weight) {
  const auto stages = static_cast<int>(problem.stages.size());
  const auto blocks = static_cast<int>(problem.blocks.size());
  const auto fill = [&](double most) {
    Cuts cuts;
    int begin = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const int room = blocks - begin - (stages - stage - 1);
      int count = stage + 1 == stages ? room : 1;
      while (stage + 1 < stages && count < room && weight(stage, begin, count + 1) <= most) ++count;
      cuts.push_back(count);
      begin += count;
    }
    return cuts;
  };
  const auto largest = [&](const Cuts& cuts) {
    double most = 0;
    int begin = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const int count = cuts[static_cast<std::size_t>(stage)];
      most = std::max(most, weight(stage, begin, count));
      begin += count;
    }
    return most;
  };
  Cuts best = even_cuts(problem);
  double low = 0;
  double high = largest(best);
  for (int i = 0; i < 40; ++i) {
    const double middle = 0.5 * (low + high);
    const Cuts cuts = fill(middle);
    const double reached = largest(cuts);
    if (reached <= middle) {
      best = cuts;
      high = reached;
    } else {
      low = middle;
    }
  }
  return best;
}

double slowest(const PipelineSolution& solution) {
  return std::ranges::max_element(solution.stages, {}, &SegmentPoint::load)->load;
}

std::size_t slowest_stage(const PipelineSolution& solution) {
  return static_cast<std::size_t>(
      std::ranges::max_element(solution.stages, {}, &SegmentPoint::load) - solution.stages.begin());
}

std::int64_t largest(const PipelineSolution& solution) {
  std::int64_t most = 0;
  for (const SegmentPoint& stage : solution.stages)
    most = std::max(most, stage.memory + stage.workspace);
  return most;
}

// The best strategies for given cuts, as each stage by itself sees them: least time within its
// memory.
class StageByStage {
 public:
  explicit StageByStage(const PipelineProblem& problem)
      : problem_(problem), simpler_(relaxations(problem).front()) {}

  std::optional<PipelineSolution> solve(const Cuts& cuts) {
    PipelineSolution solution;
    solution.blocks = cuts;
    int begin = 0;
    for (int stage = 0; stage < static_cast<int>(cuts.size()); ++stage) {
      const int count = cuts[static_cast<std::size_t>(stage)];
      const auto& point = segment(stage, begin, count);
      if (!point) return std::nullopt;
      solution.stages.push_back(*point);
      begin += count;
    }
    solution.time = time_of(problem_, solution);
    return solution;
  }

 private:
  const std::optional<SegmentPoint>& segment(int stage, int begin, int count) {
    const auto [at, is_new] = solved_.try_emplace(segment_key(problem_, stage, begin, count));
    if (is_new) {
      constexpr std::size_t kPoints = 250;
      const auto layers = stage_layers(simpler_, stage, begin, count);
      SegmentProblem problem = segment_of(simpler_, stage, layers);
      problem.load_alone = true;
      problem.most_points = kPoints;
      const auto found = search_segment(problem).points;
      if (!found.empty()) at->second = found.front();
    }
    return at->second;
  }

  const PipelineProblem& problem_;
  PipelineProblem simpler_;
  std::map<SegmentKey, std::optional<SegmentPoint>> solved_;
};

}  // namespace

std::vector<PipelineSolution> balanced_solutions(const PipelineProblem& problem) {
  const Reference reference(problem);
  StageByStage stages(problem);
  const Cuts even = even_cuts(problem);
  if (even.empty()) return {};
  const Cuts by_memory =
      balanced_cuts(problem, [&](int s, int b, int n) { return reference.memory(s, b, n); });
  const Cuts by_time =
      balanced_cuts(problem, [&](int s, int b, int n) { return reference.time(s, b, n); });

  // Condition 3 measures against the largest stage of p_t; where p_t itself does not fit, the
  // budget alone limits memory.
  const auto timed = stages.solve(by_time);
  const std::int64_t most_memory =
      timed ? largest(*timed) : std::numeric_limits<std::int64_t>::max();

  std::optional<PipelineSolution> best;
  std::map<Cuts, std::optional<PipelineSolution>> seen;
  std::deque<Cuts> queue;
  const auto solved = [&](const Cuts& cuts) -> const std::optional<PipelineSolution>& {
    const auto [at, is_new] = seen.try_emplace(cuts);
    if (is_new) at->second = stages.solve(cuts);
    return at->second;
  };
  // Even cuts and p_t start walks of their own, so that the result is never behind either.
  for (const Cuts& start : {by_memory, even, by_time})
    if (!seen.contains(start) && solved(start)) queue.push_back(start);
  while (!queue.empty() && seen.size() < kMostPartitions) {
    const Cuts cuts = queue.front();
    queue.pop_front();
    const PipelineSolution solution = *solved(cuts);
    if (!best || solution.time < best->time) best = solution;
    const std::size_t slow = slowest_stage(solution);
    if (cuts[slow] <= problem.multiple) continue;
    for (const int side : {-1, 1}) {
      const auto neighbour = static_cast<std::int64_t>(slow) + side;
      if (neighbour < 0 || neighbour >= static_cast<std::int64_t>(cuts.size())) continue;
      Cuts moved = cuts;
      moved[slow] -= problem.multiple;
      moved[static_cast<std::size_t>(neighbour)] += problem.multiple;
      if (seen.contains(moved)) continue;
      const auto& next = solved(moved);  // none where memory does not suffice: condition 2
      if (next && slowest(*next) <= slowest(solution) && largest(*next) <= most_memory)
        queue.push_back(moved);
    }
  }
  std::vector<PipelineSolution> found;
  if (best) found.push_back(*best);
  if (const auto& plain = solved(even); plain && best && best->blocks != even)
    found.push_back(*plain);
  return found;
}

}  // namespace braid
