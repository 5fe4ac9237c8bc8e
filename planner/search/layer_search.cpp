#include "planner/search/layer_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "planner/search/dominance.h"
#include "planner/search/watch.h"

namespace braid {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kBeam = 64;  // points of a narrow beam
// Candidates between two looks at the watch.
constexpr std::size_t kUnwatched = 4096;

// A run of equal layers.
struct Run {
  const LayerMenu* menu;
  int count;
};

std::vector<Run> runs_of(std::span<const LayerMenu* const> layers) {
  std::vector<Run> runs;
  for (const LayerMenu* menu : layers) {
    if (runs.empty() || runs.back().menu != menu) runs.push_back({menu, 0});
    ++runs.back().count;
  }
  return runs;
}

struct Choice {
  double cost = kInfinity;  // load + price · memory
  std::int64_t memory = 0;
};

Choice cheapest(const LayerMenu& menu, double price) {
  Choice best;
  for (const LayerOption& o : menu.options) {
    const double cost = o.load + price * static_cast<double>(o.memory);
    if (cost < best.cost) best = {cost, o.memory};
  }
  return best;
}

// The price of a byte at which the relaxed problem just fits.
struct Dual {
  double price = 0;
  double bound = kInfinity;
};

Dual solve_dual(const std::vector<Run>& runs, double budget) {
  const auto evaluate = [&](double price) {
    double cost = -price * budget;
    double memory = -budget;
    for (const Run& run : runs) {
      const Choice c = cheapest(*run.menu, price);
      cost += run.count * c.cost;
      memory += run.count * static_cast<double>(c.memory);
    }
    return std::pair(cost, memory);
  };
  auto [free_bound, free_excess] = evaluate(0.0);
  if (free_excess <= 0) return {0.0, free_bound};
  double low = 0.0;
  double high = 1e-12;  // seconds a byte
  while (evaluate(high).second > 0 && high < 1e6) high *= 16;
  Dual best{0.0, free_bound};
  for (int i = 0; i < 50; ++i) {
    const double price = 0.5 * (low + high);
    const auto [bound, excess] = evaluate(price);
    if (bound > best.bound) best = {price, bound};
    (excess > 0 ? low : high) = price;
  }
  return best;
}

std::int64_t least_memory(const LayerMenu& menu) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const LayerOption& o : menu.options) least = std::min(least, o.memory);
  return least;
}

double least_ramp(const LayerMenu& menu) {
  double least = kInfinity;
  for (const LayerOption& o : menu.options) least = std::min(least, o.ramp);
  return least;
}

// Every choice needs at least this much workspace.
std::int64_t least_workspace(const std::vector<Run>& runs) {
  std::int64_t least = 0;
  for (const Run& run : runs) {
    std::int64_t here = std::numeric_limits<std::int64_t>::max();
    for (const LayerOption& o : run.menu->options) here = std::min(here, o.workspace);
    least = std::max(least, here);
  }
  return least;
}

struct Node {
  double ramp, load;
  std::int64_t memory, workspace;
  int layout, option, parent;
};

bool before(const Node& a, const Node& b) {
  return std::tie(a.load, a.ramp, a.memory, a.workspace, a.layout, a.option, a.parent) <
         std::tie(b.load, b.ramp, b.memory, b.workspace, b.layout, b.option, b.parent);
}

// Bounds on what the layers from a position on must still add.
struct Rest {
  double load;          // least
  double ramp;          // least
  double priced;        // least load + price · memory
  std::int64_t memory;  // least
};

}  // namespace

Transitions::Transitions(int layouts)
    : layouts_(layouts),
      ramp_(static_cast<std::size_t>(layouts) * static_cast<std::size_t>(layouts)),
      load_(ramp_.size()) {}

void Transitions::set(int from, int to, double ramp, double load) {
  ramp_[index(from, to)] = ramp;
  load_[index(from, to)] = load;
}

double segment_load_bound(const SegmentProblem& problem) {
  const std::vector<Run> runs = runs_of(problem.layers);
  std::int64_t memory = 0;
  for (const Run& run : runs) {
    if (run.menu->options.empty()) return kInfinity;
    memory += run.count * least_memory(*run.menu);
  }
  const std::int64_t budget = problem.budget - least_workspace(runs);
  if (memory > budget) return kInfinity;
  return solve_dual(runs, static_cast<double>(budget)).bound;
}

namespace {

// One search over the layers of a segment.
class SegmentSearch {
 public:
  explicit SegmentSearch(const SegmentProblem& problem)
      : problem_(problem),
        budget_(problem.budget - least_workspace(runs_of(problem.layers))),
        dual_(solve_dual(runs_of(problem.layers), static_cast<double>(budget_))),
        rest_(problem.layers.size() + 1, Rest{0, 0, 0, 0}) {
    for (std::size_t l = problem.layers.size(); l-- > 0;) {
      const bool repeats =
          l + 1 < problem.layers.size() && problem.layers[l] == problem.layers[l + 1];
      if (!repeats) step_ = step_of(*problem.layers[l]);
      rest_[l] = {rest_[l + 1].load + step_.load, rest_[l + 1].ramp + step_.ramp,
                  rest_[l + 1].priced + step_.priced, rest_[l + 1].memory + step_.memory};
    }
  }

  bool hopeless(double limit) const { return dual_.bound >= limit || rest_[0].memory > budget_; }

  // Points below the limit, with no more than `width` at any layer: beyond that the ones whose
  // bound is best go on, and the result is not complete.
  SegmentResult run(double limit, std::size_t width) {
    limit_ = limit;
    SegmentResult result;
    arena_.clear();
    frontier_.clear();
    for (std::size_t l = 0; l < problem_.layers.size(); ++l) {
      expand(l);
      result.work += candidates_.size();
      const bool spent = result.work > problem_.most_work;
      if (!keep_best(l, spent ? std::min(width, kBeam) : width)) result.complete = false;
    }
    collect(result.points);
    return result;
  }

 private:
  Rest step_of(const LayerMenu& menu) const {
    return {cheapest(menu, 0).cost, least_ramp(menu), cheapest(menu, dual_.price).cost,
            least_memory(menu)};
  }

  // The least load with which the node can still end, by the price of memory.
  double priced(const Node& node, std::size_t layer) const {
    return node.load + dual_.price * static_cast<double>(node.memory - budget_) +
           rest_[layer + 1].priced;
  }

  bool useful(const Node& node, std::size_t layer) const {
    const Rest& after = rest_[layer + 1];
    // Rounding in the bound must never cost the optimum.
    const double slack = 1e-12 * std::abs(dual_.bound);
    return node.memory + node.workspace + after.memory <= problem_.budget &&
           node.load + after.load < limit_ && node.ramp + after.ramp < problem_.ramp_limit &&
           priced(node, layer) < limit_ + slack;
  }

  void expand(std::size_t layer) {
    const LayerMenu& menu = *problem_.layers[layer];
    const Transitions& transitions = *problem_.transitions;
    const bool follows = problem_.follows(layer);
    candidates_.clear();
    const auto add = [&](const Node* from, int parent, std::span<const std::size_t> options) {
      for (const std::size_t o : options) {
        const LayerOption& option = menu.options[o];
        Node node{option.ramp,   option.load,         option.memory, option.workspace,
                  option.layout, static_cast<int>(o), parent};
        if (from != nullptr) {
          node.ramp += from->ramp;
          node.load += from->load;
          if (follows) {
            node.ramp += transitions.ramp(from->layout, option.layout);
            node.load += transitions.load(from->layout, option.layout);
          }
          node.memory += from->memory;
          node.workspace = std::max(node.workspace, from->workspace);
        }
        if (useful(node, layer)) candidates_.push_back(node);
      }
    };
    std::vector<std::size_t> all(menu.options.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (layer == 0) add(nullptr, -1, all);
    if (std::exchange(compared_, &menu) != &menu)
      unbeaten_.assign(static_cast<std::size_t>(transitions.layouts()), {});
    // Many nodes are worth comparing options beforehand.
    const bool many = follows && frontier_.size() > unbeaten_.size() * 64;
    std::size_t watched = 0;
    for (const int parent : frontier_) {
      if (candidates_.size() - watched >= kUnwatched) {
        look(problem_.watch);
        watched = candidates_.size();
      }
      const Node from = arena_[static_cast<std::size_t>(parent)];
      std::vector<std::size_t>& unbeaten = unbeaten_[static_cast<std::size_t>(from.layout)];
      if (many && unbeaten.empty()) unbeaten = unbeaten_behind(from.layout, menu);
      add(&from, parent, many ? unbeaten : all);
    }
  }

  // The options that, behind a node of this layout, no other beats: whatever the node, the other
  // would cover it.
  std::vector<std::size_t> unbeaten_behind(int from, const LayerMenu& menu) const {
    const Transitions& t = *problem_.transitions;
    const auto beats = [&](const LayerOption& a, const LayerOption& b) {
      if (a.memory > b.memory || a.workspace > b.workspace) return false;
      // By more than sums that are rounded differently could hide.
      const double load = b.load + t.load(from, b.layout);
      return a.load + t.load(from, a.layout) + t.load(a.layout, b.layout) < load * (1 - 1e-12) &&
             (problem_.load_alone || a.ramp + t.ramp(from, a.layout) + t.ramp(a.layout, b.layout) <=
                                         b.ramp + t.ramp(from, b.layout));
    };
    std::vector<std::size_t> kept;
    for (std::size_t o = 0; o < menu.options.size(); ++o)
      if (std::ranges::none_of(menu.options,
                               [&](const LayerOption& a) { return beats(a, menu.options[o]); }))
        kept.push_back(o);
    return kept;
  }

  // Moves the candidates that no other covers into the frontier; false where there were too many.
  bool keep_best(std::size_t layer, std::size_t width) {
    std::ranges::sort(candidates_, before);
    DominanceSweep sweep(*problem_.transitions);
    std::size_t swept = 0;
    std::erase_if(candidates_, [&](const Node& c) {
      if (++swept % kUnwatched == 0) look(problem_.watch);
      // Where the least load is all that counts, ramps need not be told apart.
      const FrontierPoint point{problem_.load_alone ? 0.0 : c.ramp, c.load, c.memory, c.workspace,
                                c.layout};
      if (sweep.covered(point)) return true;
      sweep.keep(point);
      return false;
    });
    const bool fits = candidates_.size() <= width;
    if (!fits) {
      std::ranges::stable_sort(candidates_, {}, [&](const Node& n) { return priced(n, layer); });
      candidates_.resize(width);
      std::ranges::sort(candidates_, before);
    }
    frontier_.clear();
    for (const Node& c : candidates_) {
      frontier_.push_back(static_cast<int>(arena_.size()));
      arena_.push_back(c);
    }
    return fits;
  }

  // Memory has done its work: what fits competes in time alone.
  void collect(std::vector<SegmentPoint>& points) const {
    const std::size_t depth = problem_.layers.size();
    for (const int id : frontier_) {
      const Node& node = arena_[static_cast<std::size_t>(id)];
      if (!points.empty() && points.back().ramp <= node.ramp) continue;
      SegmentPoint point{node.ramp, node.load, node.memory, node.workspace,
                         std::vector<int>(depth)};
      int at = id;
      for (std::size_t l = depth; l-- > 0;) {
        point.choice[l] = arena_[static_cast<std::size_t>(at)].option;
        at = arena_[static_cast<std::size_t>(at)].parent;
      }
      points.push_back(std::move(point));
      if (problem_.load_alone) break;
    }
  }

  const SegmentProblem& problem_;
  std::int64_t budget_;
  Dual dual_;
  Rest step_{};
  std::vector<Rest> rest_;
  double limit_ = 0;
  std::vector<Node> arena_, candidates_;
  const LayerMenu* compared_ = nullptr;             // whose options …
  std::vector<std::vector<std::size_t>> unbeaten_;  // … are compared, by the layout ahead of them
  std::vector<int> frontier_;
};

}  // namespace

SegmentResult search_segment(const SegmentProblem& problem) {
  look(problem.watch);
  for (const LayerMenu* menu : problem.layers)
    if (menu->options.empty()) return {};
  SegmentSearch search(problem);
  if (search.hopeless(problem.load_limit)) return {};
  if (!problem.load_alone) return search.run(problem.load_limit, problem.most_points);

  // The better the plan in hand, the less is left to search: first one without search, then a
  // narrow beam, then all of it.
  SegmentResult best;
  double limit = problem.load_limit;
  const auto take = [&](SegmentPoint point) {
    if (point.load >= limit) return;
    limit = point.load;
    best.points = {std::move(point)};
  };
  if (auto quick = quick_segment(problem)) take(std::move(*quick));
  for (const std::size_t width : {kBeam, problem.most_points}) {
    if (search.hopeless(limit)) break;
    SegmentResult found = search.run(limit, width);
    for (SegmentPoint& point : found.points) take(std::move(point));
    best.complete = found.complete;
    best.work += found.work;
    if (found.complete) break;
  }
  return best;
}

void drop_dominated(LayerMenu& menu) {
  std::ranges::sort(menu.options, [](const LayerOption& a, const LayerOption& b) {
    return std::tie(a.load, a.ramp, a.memory, a.workspace, a.layout, a.strategy) <
           std::tie(b.load, b.ramp, b.memory, b.workspace, b.layout, b.strategy);
  });
  std::vector<LayerOption> kept;
  for (const LayerOption& o : menu.options) {
    const bool beaten = std::ranges::any_of(kept, [&](const LayerOption& k) {
      return k.layout == o.layout && k.ramp <= o.ramp && k.load <= o.load && k.memory <= o.memory &&
             k.workspace <= o.workspace;
    });
    if (!beaten) kept.push_back(o);
  }
  menu.options = std::move(kept);
}

}  // namespace braid
