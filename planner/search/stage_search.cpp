#include "planner/search/stage_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "planner/search/watch.h"

namespace braid {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kNarrow = 16;  // points of a beam that only looks for some plan

// What a stage takes beside its layers.
SegmentPoint with_transfers(SegmentPoint point, const StageMenus& menus) {
  point.ramp += menus.ramp;
  point.load += menus.load;
  return point;
}

struct Least {
  double ramp = kInfinity, load = kInfinity;

  void include(const LayerMenu& menu) {
    for (const LayerOption& o : menu.options) {
      ramp = std::min(ramp, o.ramp);
      load = std::min(load, o.load);
    }
  }
};

// Least ramps and loads of everything, whatever its stage.
class Bounds {
 public:
  explicit Bounds(const PipelineProblem& problem) {
    std::vector<Least> types(problem.stages.front().blocks.size());
    for (const StageMenus& stage : problem.stages)
      for (std::size_t t = 0; t < types.size(); ++t) types[t].include(stage.blocks[t]);
    for (const int type : problem.blocks) {
      const Least& block = types[static_cast<std::size_t>(type)];
      ramps_.push_back(ramps_.back() + block.ramp);
      loads_.push_back(loads_.back() + block.load);
    }
    // A stage on slower devices takes this many times as long for any block, so it counts for less.
    for (const StageMenus& stage : problem.stages) {
      double slowness = kInfinity;
      for (std::size_t t = 0; t < types.size(); ++t) {
        Least here;
        here.include(stage.blocks[t]);
        if (types[t].load > 0) slowness = std::min(slowness, here.load / types[t].load);
      }
      speeds_.push_back(slowness < kInfinity ? 1 / slowness : 1.0);
    }
    for (const LayerMenu& menu : problem.stages.front().before) before_ += outside(menu).ramp;
    for (const LayerMenu& menu : problem.stages.back().after) {
      after_ += outside(menu).ramp;
      // In the fastest stage's time, as the blocks' loads are.
      after_load_ += outside(menu).load * speeds_.back();
    }
  }

  // Of the blocks in [begin, end), with embedding and head where the range touches them.
  double ramp(int begin, int end) const {
    return at(ramps_, end) - at(ramps_, begin) + (begin == 0 ? before_ : 0) +
           (end == size() ? after_ : 0);
  }
  double load(int begin, int end) const {
    return at(loads_, end) - at(loads_, begin) + (end == size() ? after_load_ : 0);
  }
  int size() const { return static_cast<int>(ramps_.size()) - 1; }
  // How many of the fastest stages the stages from `stage` on are worth.
  double speed_from(int stage) const {
    return std::accumulate(speeds_.begin() + stage, speeds_.end(), 0.0);
  }

 private:
  static Least outside(const LayerMenu& menu) {
    Least least;
    least.include(menu);
    return least;
  }
  static double at(const std::vector<double>& v, int i) { return v[static_cast<std::size_t>(i)]; }

  std::vector<double> ramps_{0.0}, loads_{0.0};
  std::vector<double> speeds_;
  double before_ = 0, after_ = 0, after_load_ = 0;
};

class Solver {
 public:
  enum class Depth { bounds, points };

  Solver(const PipelineProblem& problem, const PipelineLimits& limits, const std::vector<int>* cuts,
         Depth depth = Depth::points)
      : problem_(problem),
        bounds_(problem),
        stages_(static_cast<int>(problem.stages.size())),
        blocks_(static_cast<int>(problem.blocks.size())),
        limit_(limits.time),
        most_points_(limits.most_points),
        most_work_(limits.most_work),
        cuts_(cuts != nullptr || problem.cuts.empty() ? cuts : &problem.cuts),
        depth_(depth),
        states_(problem.stages.size() + 1) {}

  PipelineResult run() {
    if (hopeless({}, 0, 0) || !enough_room()) return {};
    states_[0][0] = {State{}};
    for (int stage = 0; stage < stages_; ++stage) advance(stage);
    const State* best = nullptr;
    for (const State& state : states_.back()[blocks_])
      if (best == nullptr || time(state) < time(*best)) best = &state;
    if (best == nullptr || time(*best) >= limit_) return {std::nullopt, complete_, work_};
    return {trace_back(*best), complete_, work_};
  }

 private:
  struct State {
    PathState path;
    int previous = -1;  // the state before this stage
    int begin = 0;      // the stage's first block
    int point = -1;     // which of its segment's points
  };
  using Frontier = std::vector<State>;

  double time(const State& state) const { return state.path.time(problem_.ramp_after); }

  // What a stage's load may reach when all others ramp as cheaply as they can.
  double load_limit(int stage, int begin, int count) const {
    if (!problem_.ramp_after) return limit_ - earliest(stage).first;
    return limit_ - (bounds_.ramp(0, blocks_) - bounds_.ramp(begin, begin + count));
  }

  // What its ramp may reach when, besides, the bottleneck is no worse than the mean.
  double ramp_limit(int stage, int begin, int count) const {
    const int behind = stages_ - stage - 1;
    if (!problem_.ramp_after) {
      if (behind == 0) return kInfinity;
      const auto [ramp, load] = earliest(stage);
      const double left = std::max(0.0, load - bounds_.load(begin, begin + count));
      return limit_ - ramp - left / behind;
    }
    if (stages_ == 1) return kInfinity;
    // With ramps R and loads L in all, R + (L - R) / stages must stay below the limit, and so must
    // R: a ramp lowers what its own stage carries beyond it.
    const double mean = bounds_.load(0, blocks_) / stages_;
    const double ramps = std::min(limit_, (limit_ - mean) * stages_ / (stages_ - 1));
    return ramps - (bounds_.ramp(0, blocks_) - bounds_.ramp(begin, begin + count));
  }

  // Least ramps in front of a stage, wherever it begins, and the least loads from there on; the
  // stages in front may hold as little as one unit each or all that others leave.
  std::pair<double, double> earliest(int stage) const {
    const int least = stage * problem_.multiple;
    const int most = blocks_ - (stages_ - stage) * problem_.multiple;
    return {stage == 0 ? 0.0 : bounds_.ramp(0, least), bounds_.load(most, blocks_)};
  }

  bool could_fit(int stage, int begin, int count) const {
    const auto layers = stage_layers(problem_, stage, begin, count);
    return segment_load_bound(segment_of(problem_, stage, layers)) <
           load_limit(stage, begin, count);
  }

  // Could the stages together take all blocks? Asked of bounds alone, where blocks are alike.
  bool enough_room() const {
    const bool alike = std::ranges::all_of(
        problem_.blocks, [&](int type) { return type == problem_.blocks.front(); });
    if (!alike || stages_ == 1) return true;
    int room = 0;
    for (int stage = 0; stage < stages_; ++stage) {
      const auto fits = [&](int count) {
        const int begin = stage == 0 ? 0 : stage + 1 == stages_ ? blocks_ - count : 1;
        return could_fit(stage, begin, count);
      };
      int low = 0;
      int high = blocks_ - (stages_ - 1);
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (fits(middle)) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      if (low == 0) return false;
      room += low;
    }
    return room >= blocks_;
  }

  const std::vector<SegmentPoint>& points(int stage, int begin, int count) {
    const SegmentKey k = segment_key(problem_, stage, begin, count);
    const auto found = segments_.find(k);
    if (found != segments_.end()) return found->second;
    return segments_.emplace(k, solve(stage, begin, count)).first->second;
  }

  std::vector<SegmentPoint> solve(int stage, int begin, int count) {
    look(problem_.watch);
    const auto layers = stage_layers(problem_, stage, begin, count);
    const StageMenus& menus = problem_.stages[static_cast<std::size_t>(stage)];
    SegmentProblem segment = segment_of(problem_, stage, layers);
    segment.load_limit = load_limit(stage, begin, count) - menus.load;
    segment.ramp_limit = ramp_limit(stage, begin, count) - menus.ramp;
    // Without ramps behind it, the last stage's own counts for nobody.
    segment.load_alone = problem_.load_alone || (stage + 1 == stages_ && !problem_.ramp_after);
    segment.most_points = most_points_;
    std::vector<SegmentPoint> found;
    if (depth_ == Depth::bounds) {
      const double load = segment_load_bound(segment);
      if (load < segment.load_limit) {
        found.emplace_back();
        found.back().load = load;
        found.back().ramp = problem_.proportions[static_cast<std::size_t>(stage)] * load;
      }
    } else {
      if (work_ > most_work_) segment.most_points = std::min(segment.most_points, kNarrow);
      segment.most_work = most_work_ - std::min(most_work_, work_);
      SegmentResult result = search_segment(segment);
      complete_ = complete_ && result.complete;
      work_ += result.work;
      found = std::move(result.points);
    }
    for (SegmentPoint& point : found) point = with_transfers(std::move(point), menus);
    return found;
  }

  static bool covers(const State& a, const State& b) {
    return a.path.sum <= b.path.sum && a.path.worst <= b.path.worst;
  }

  void insert(Frontier& frontier, const State& state) {
    constexpr std::size_t kComparisons = 16;  // that take as long as a candidate of a segment
    work_ += 1 + frontier.size() / kComparisons;
    if (std::ranges::any_of(frontier, [&](const State& kept) { return covers(kept, state); }))
      return;
    std::erase_if(frontier, [&](const State& kept) { return covers(state, kept); });
    frontier.push_back(state);
  }

  // Where the work is used up, the states go on whose paths are shortest.
  void narrow(Frontier& frontier) {
    if (work_ <= most_work_ || frontier.size() <= kNarrow) return;
    complete_ = false;
    std::ranges::sort(frontier, {}, [&](const State& s) { return time(s); });
    frontier.resize(kNarrow);
  }

  // Whatever the cuts behind block `end`, some stage must carry the mean of what is left.
  bool hopeless(const PathState& path, int stages_done, int end) const {
    const int behind = stages_ - stages_done;
    const double ramp = behind > 0 ? bounds_.ramp(end, blocks_) : 0.0;
    const double speed = bounds_.speed_from(stages_done);
    const double load = behind > 0 ? bounds_.load(end, blocks_) / speed : 0.0;
    if (!problem_.ramp_after) return std::max(path.worst, path.sum + load) >= limit_;
    const double excess = behind > 0 ? (bounds_.load(end, blocks_) - ramp) / speed : 0.0;
    return path.sum + ramp + std::max(path.worst, excess) >= limit_;
  }

  void advance(int stage) {
    const int behind = stages_ - stage - 1;
    auto& next = states_[static_cast<std::size_t>(stage) + 1];
    for (auto& [begin, frontier] : states_[static_cast<std::size_t>(stage)]) narrow(frontier);
    for (const auto& [begin, frontier] : states_[static_cast<std::size_t>(stage)]) {
      const int room = blocks_ - begin - behind * problem_.multiple;
      int fewest = behind == 0 ? room : problem_.multiple;
      int most = room;
      if (cuts_ != nullptr) fewest = most = (*cuts_)[static_cast<std::size_t>(stage)];
      for (int count = fewest; count <= most; count += problem_.multiple) {
        look(problem_.watch);
        const auto& found = points(stage, begin, count);
        if (found.empty() && !could_fit(stage, begin, count)) break;  // nor would more blocks
        for (std::size_t s = 0; s < frontier.size(); ++s) {
          look(problem_.watch);
          for (std::size_t p = 0; p < found.size(); ++p) {
            const PathState path =
                extend(frontier[s].path, found[p].ramp, found[p].load, problem_.ramp_after);
            if (hopeless(path, stage + 1, begin + count)) continue;
            insert(next[begin + count], {path, static_cast<int>(s), begin, static_cast<int>(p)});
          }
        }
      }
    }
  }

  PipelineSolution trace_back(State state) {
    PipelineSolution solution;
    solution.time = time(state);
    solution.blocks.resize(problem_.stages.size());
    solution.stages.resize(problem_.stages.size());
    int end = blocks_;
    for (int stage = stages_; stage-- > 0;) {
      const auto at = static_cast<std::size_t>(stage);
      solution.blocks[at] = end - state.begin;
      solution.stages[at] =
          points(stage, state.begin, end - state.begin)[static_cast<std::size_t>(state.point)];
      end = state.begin;
      if (stage > 0) state = states_[at][end][static_cast<std::size_t>(state.previous)];
    }
    return solution;
  }

  const PipelineProblem& problem_;
  Bounds bounds_;
  int stages_, blocks_;
  double limit_;
  std::size_t most_points_, most_work_;
  std::size_t work_ = 0;
  const std::vector<int>* cuts_;
  Depth depth_;
  bool complete_ = true;
  std::map<SegmentKey, std::vector<SegmentPoint>> segments_;
  std::vector<std::map<int, Frontier>> states_;  // by stages done, then by blocks done
};

}  // namespace

SegmentProblem segment_of(const PipelineProblem& problem, int stage,
                          const std::vector<const LayerMenu*>& layers) {
  const StageMenus& menus = problem.stages[static_cast<std::size_t>(stage)];
  const std::size_t outside = menus.before.size() + menus.after.size();
  const auto chunks = static_cast<std::size_t>(problem.multiple);
  return {.layers = layers,
          .transitions = &menus.transitions,
          .budget = menus.budget,
          .first_block = menus.before.size(),
          .chunk_blocks = layers.size() > outside ? (layers.size() - outside) / chunks : 0,
          .chunks = chunks,
          .load_limit = kInfinity,
          .watch = problem.watch};
}

SegmentKey segment_key(const PipelineProblem& problem, int stage, int begin, int count) {
  const auto first = problem.blocks.begin() + begin;
  const bool alike = std::all_of(first, first + count, [&](int type) { return type == *first; });
  return {stage, alike ? -1 - *first : begin, count};
}

PathState extend(const PathState& before, double ramp, double load, bool ramp_after) {
  if (ramp_after) return {before.sum + ramp, std::max(before.worst, load - ramp)};
  return {before.sum + ramp, std::max(before.worst, before.sum + load)};
}

std::optional<PipelineSolution> quick_pipeline(const PipelineProblem& problem) {
  PipelineSolution solution;
  solution.blocks = even_cuts(problem);
  if (solution.blocks.empty()) return std::nullopt;
  PathState path;
  int begin = 0;
  for (int stage = 0; stage < static_cast<int>(problem.stages.size()); ++stage) {
    const int count = solution.blocks[static_cast<std::size_t>(stage)];
    const auto layers = stage_layers(problem, stage, begin, count);
    auto point = quick_segment(segment_of(problem, stage, layers));
    if (!point) return std::nullopt;
    *point = with_transfers(std::move(*point), problem.stages[static_cast<std::size_t>(stage)]);
    path = extend(path, point->ramp, point->load, problem.ramp_after);
    solution.stages.push_back(std::move(*point));
    begin += count;
  }
  solution.time = path.time(problem.ramp_after);
  return solution;
}

PipelineResult search_pipeline(const PipelineProblem& problem, const PipelineLimits& limits) {
  // What is found quickly bounds what is left to find.
  std::optional<PipelineSolution> quick = quick_pipeline(problem);
  if (quick && quick->time >= limits.time) quick.reset();
  PipelineLimits tighter = limits;
  if (quick) tighter.time = quick->time;
  PipelineResult result = Solver(problem, tighter, nullptr).run();
  if (!result.solution) result.solution = std::move(quick);
  return result;
}

PipelineResult search_cuts(const PipelineProblem& problem, const std::vector<int>& cuts,
                           const PipelineLimits& limits) {
  return Solver(problem, limits, &cuts).run();
}

std::optional<double> bound_below(const PipelineProblem& relaxed_problem, double limit) {
  const auto bound =
      Solver(relaxed_problem, {.time = limit}, nullptr, Solver::Depth::bounds).run().solution;
  if (!bound) return std::nullopt;
  return bound->time;
}

double time_of(const PipelineProblem& problem, const PipelineSolution& solution) {
  PathState path;
  int begin = 0;
  for (int stage = 0; stage < static_cast<int>(problem.stages.size()); ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const auto layers = stage_layers(problem, stage, begin, solution.blocks[at]);
    const SegmentPoint point = with_transfers(
        measure_segment(segment_of(problem, stage, layers), solution.stages[at].choice),
        problem.stages[at]);
    path = extend(path, point.ramp, point.load, problem.ramp_after);
    begin += solution.blocks[at];
  }
  return path.time(problem.ramp_after);
}

double pipeline_bound(const PipelineProblem& problem) {
  const Bounds bounds(problem);
  const double speed = bounds.speed_from(0);
  const double ramp = bounds.ramp(0, bounds.size());
  const double load = bounds.load(0, bounds.size());
  if (problem.stages.size() == 1) {
    const auto layers = stage_layers(problem, 0, 0, bounds.size());
    return std::max(ramp, segment_load_bound(segment_of(problem, 0, layers)));
  }
  return problem.ramp_after ? ramp + std::max(0.0, (load - ramp) / speed) : load / speed;
}

std::vector<const LayerMenu*> stage_layers(const PipelineProblem& problem, int stage, int begin,
                                           int count) {
  const StageMenus& menus = problem.stages[static_cast<std::size_t>(stage)];
  std::vector<const LayerMenu*> layers;
  layers.reserve(static_cast<std::size_t>(count) + 2);
  for (const LayerMenu& menu : menus.before) layers.push_back(&menu);
  for (int b = begin; b < begin + count; ++b) {
    const int type = problem.blocks[static_cast<std::size_t>(b)];
    layers.push_back(&menus.blocks[static_cast<std::size_t>(type)]);
  }
  for (const LayerMenu& menu : menus.after) layers.push_back(&menu);
  return layers;
}

std::vector<int> even_cuts(const PipelineProblem& problem) {
  if (!problem.cuts.empty()) return problem.cuts;
  const auto stages = static_cast<int>(problem.stages.size());
  const int units = static_cast<int>(problem.blocks.size()) / problem.multiple;
  if (units < stages || units * problem.multiple != static_cast<int>(problem.blocks.size()))
    return {};
  std::vector<int> cuts(problem.stages.size(), units / stages * problem.multiple);
  const int spare = units % stages;
  const int first = (stages - spare) / 2;
  for (int i = first; i < first + spare; ++i) cuts[static_cast<std::size_t>(i)] += problem.multiple;
  return cuts;
}

}  // namespace braid
