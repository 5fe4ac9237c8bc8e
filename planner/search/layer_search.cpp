#include "planner/search/layer_search.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/search/dominance.h"

namespace braid {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
  double load;         // least
  double ramp;         // least
  double priced;       // least load + price · memory
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

void Transitions::close() {
  for (int via = 0; via < layouts_; ++via)
    for (int from = 0; from < layouts_; ++from)
      for (int to = 0; to < layouts_; ++to) {
        const double load = load_[index(from, via)] + load_[index(via, to)];
        if (load >= load_[index(from, to)]) continue;
        load_[index(from, to)] = load;
        ramp_[index(from, to)] = ramp_[index(from, via)] + ramp_[index(via, to)];
      }
}

double segment_load_bound(const SegmentProblem& problem) {
  const std::vector<Run> runs = runs_of(problem.layers);
  const std::int64_t budget = problem.budget - least_workspace(runs);
  std::int64_t memory = 0;
  for (const Run& run : runs) {
    if (run.menu->options.empty()) return kInfinity;
    memory += run.count * least_memory(*run.menu);
  }
  if (memory > budget) return kInfinity;
  return solve_dual(runs, static_cast<double>(budget)).bound;
}

SegmentResult search_segment(const SegmentProblem& problem) {
  const std::vector<Run> runs = runs_of(problem.layers);
  for (const Run& run : runs)
    if (run.menu->options.empty()) return {};
  const std::int64_t budget = problem.budget - least_workspace(runs);
  const Dual dual = solve_dual(runs, static_cast<double>(budget));
  double limit = problem.load_limit;
  std::optional<SegmentPoint> quick;
  if (problem.load_alone && (quick = quick_segment(problem))) {
    if (quick->load < limit) {
      limit = quick->load;
    } else {
      quick.reset();
    }
  }
  // Rounding in the bounds must never cost the optimum.
  const double slack = 1e-12 * std::max(1.0, std::min(limit, 1e300));
  const auto nothing_better = [&] {
    SegmentResult result;
    if (quick) result.points.push_back(*quick);
    return result;
  };
  if (dual.bound >= limit) return nothing_better();

  const std::size_t depth = problem.layers.size();
  std::vector<Rest> rest(depth + 1, Rest{0, 0, 0, 0});
  const LayerMenu* last = nullptr;
  Rest step{};
  for (std::size_t l = depth; l-- > 0;) {
    const LayerMenu* menu = problem.layers[l];
    if (menu != last) {
      step = {cheapest(*menu, 0).cost, least_ramp(*menu), cheapest(*menu, dual.price).cost,
              least_memory(*menu)};
      last = menu;
    }
    rest[l] = {rest[l + 1].load + step.load, rest[l + 1].ramp + step.ramp,
               rest[l + 1].priced + step.priced, rest[l + 1].memory + step.memory};
  }
  if (rest[0].memory > budget) return nothing_better();

  const Transitions& transitions = *problem.transitions;
  std::vector<Node> arena;
  std::vector<int> frontier;
  std::vector<Node> candidates;
  for (std::size_t l = 0; l < depth; ++l) {
    const LayerMenu& menu = *problem.layers[l];
    const Rest& after = rest[l + 1];
    candidates.clear();
    const auto extend = [&](const Node* from, int parent) {
      for (std::size_t o = 0; o < menu.options.size(); ++o) {
        const LayerOption& option = menu.options[o];
        Node node{option.ramp,   option.load,          option.memory, option.workspace,
                  option.layout, static_cast<int>(o), parent};
        if (from != nullptr) {
          node.ramp += from->ramp + transitions.ramp(from->layout, option.layout);
          node.load += from->load + transitions.load(from->layout, option.layout);
          node.memory += from->memory;
          node.workspace = std::max(node.workspace, from->workspace);
        }
        if (node.memory + node.workspace + after.memory > problem.budget) continue;
        if (node.load + after.load >= limit || node.ramp + after.ramp >= problem.ramp_limit) continue;
        const double priced = node.load + dual.price * static_cast<double>(node.memory) +
                              after.priced - dual.price * static_cast<double>(budget);
        if (priced >= limit + slack) continue;
        candidates.push_back(node);
      }
    };
    if (l == 0) {
      extend(nullptr, -1);
    } else {
      for (const int parent : frontier) {
        const Node from = arena[static_cast<std::size_t>(parent)];
        extend(&from, parent);
      }
    }
    std::ranges::sort(candidates, before);
    frontier.clear();
    DominanceSweep sweep(transitions);
    for (const Node& c : candidates) {
      // Where the least load is all that counts, ramps need not be told apart.
      const FrontierPoint point{problem.load_alone ? 0.0 : c.ramp, c.load, c.memory, c.workspace,
                                c.layout};
      if (sweep.covered(point)) continue;
      sweep.keep(point);
      frontier.push_back(static_cast<int>(arena.size()));
      arena.push_back(c);
      if (frontier.size() > problem.most_points) return {{}, false};
    }
  }

  // Memory has done its work: what fits competes in time alone.
  SegmentResult result;
  std::vector<SegmentPoint>& points = result.points;
  for (const int id : frontier) {
    const Node& node = arena[static_cast<std::size_t>(id)];
    if (!points.empty() && points.back().ramp <= node.ramp) continue;
    SegmentPoint point{node.ramp, node.load, node.memory, node.workspace, std::vector<int>(depth)};
    int at = id;
    for (std::size_t l = depth; l-- > 0;) {
      point.choice[l] = arena[static_cast<std::size_t>(at)].option;
      at = arena[static_cast<std::size_t>(at)].parent;
    }
    points.push_back(std::move(point));
    if (problem.load_alone) break;
  }
  return points.empty() ? nothing_better() : result;
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
