// A good choice of strategies without a search. Its time is the limit below which the exact search
// has to look, so the better it is the less is left to do.

#include <algorithm>

#include "planner/search/layer_search.h"
#include "planner/search/watch.h"

namespace braid {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kAnyLayout = -1;
constexpr int kNone = -1;

class QuickSearch {
 public:
  explicit QuickSearch(const SegmentProblem& problem) : problem_(problem) {}

  std::optional<SegmentPoint> run() {
    std::vector<int> layouts{kAnyLayout};
    for (const LayerMenu* menu : problem_.layers)
      for (const LayerOption& o : menu->options)
        if (std::ranges::find(layouts, o.layout) == layouts.end()) layouts.push_back(o.layout);
    for (const int layout : layouts) {
      look(problem_.watch);
      try_layout(layout);
    }
    return best_;
  }

 private:
  // The option of least load + price · memory, in one layout where the menu has it; kNone where no
  // such cost is finite.
  int pick(const LayerMenu& menu, int layout, double price) const {
    int best = kNone;
    double best_cost = kInfinity;
    const bool bound =
        layout != kAnyLayout &&
        std::ranges::any_of(menu.options, [&](const LayerOption& o) { return o.layout == layout; });
    for (std::size_t i = 0; i < menu.options.size(); ++i) {
      const LayerOption& o = menu.options[i];
      if (bound && o.layout != layout) continue;
      const double cost = o.load + price * static_cast<double>(o.memory + o.workspace);
      if (cost < best_cost) {
        best_cost = cost;
        best = static_cast<int>(i);
      }
    }
    return best;
  }

  // Empty where a layer has no option of finite cost.
  std::vector<int> choose(int layout, double price) const {
    std::vector<int> choice;
    choice.reserve(problem_.layers.size());
    for (std::size_t l = 0; l < problem_.layers.size(); ++l) {
      const bool repeats = l > 0 && problem_.layers[l] == problem_.layers[l - 1];
      choice.push_back(repeats ? choice.back() : pick(*problem_.layers[l], layout, price));
      if (choice.back() == kNone) return {};
    }
    return choice;
  }

  SegmentPoint measure(const std::vector<int>& choice) const {
    return measure_segment(problem_, choice);
  }

  const LayerOption& option(std::size_t layer, int index) const {
    return problem_.layers[layer]->options[static_cast<std::size_t>(index)];
  }
  bool fits(const SegmentPoint& point) const {
    return point.memory + point.workspace <= problem_.budget;
  }

  void try_layout(int layout) {
    // The lowest price of memory at which the choice fits.
    double low = 0;
    double high = 1e-13;
    if (choose(layout, high).empty()) return;
    if (!fits(measure(choose(layout, high)))) {
      while (high < 1e3 && !fits(measure(choose(layout, high)))) high *= 16;
      if (high >= 1e3) return;
      for (int i = 0; i < 24; ++i) {
        const double middle = 0.5 * (low + high);
        (fits(measure(choose(layout, middle))) ? high : low) = middle;
      }
    }
    SegmentPoint point = measure(choose(layout, high));
    improve(point, layout);
    if (!best_ || point.load < best_->load) best_ = point;
  }

  // Spends what memory is left: in each run of equal layers the exchange that gains most time for
  // the memory it takes, as often as it fits.
  void improve(SegmentPoint& point, int layout) const {
    for (int round = 0; round < 64; ++round) {
      const std::int64_t left = problem_.budget - point.memory - point.workspace;
      std::size_t where = 0;
      int with = -1;
      double most = 0;
      for (std::size_t l = 0; l < point.choice.size(); ++l) {
        if (l > 0 && problem_.layers[l] == problem_.layers[l - 1] &&
            point.choice[l] == point.choice[l - 1])
          continue;
        const LayerOption& now = option(l, point.choice[l]);
        for (std::size_t i = 0; i < problem_.layers[l]->options.size(); ++i) {
          const LayerOption& other = problem_.layers[l]->options[i];
          const double gain = now.load - other.load;
          const std::int64_t more = other.memory - now.memory;
          const bool allowed = layout == kAnyLayout || other.layout == now.layout;
          if (!allowed || gain <= 0 || more > left ||
              other.workspace > point.workspace + left - more)
            continue;
          const double rate = gain / static_cast<double>(std::max<std::int64_t>(1, more));
          if (rate > most) {
            most = rate;
            where = l;
            with = static_cast<int>(i);
          }
        }
      }
      if (with < 0 || !exchange(point, where, with)) return;
    }
  }

  // Whether any layer changed.
  bool exchange(SegmentPoint& point, std::size_t first, int with) const {
    look(problem_.watch);
    const int old = point.choice[first];
    bool changed = false;
    for (std::size_t l = first; l < point.choice.size() && point.choice[l] == old &&
                                problem_.layers[l] == problem_.layers[first];
         ++l) {
      std::vector<int> choice = point.choice;
      choice[l] = with;
      const SegmentPoint next = measure(choice);
      if (!fits(next) || next.load >= point.load) break;
      point = next;
      changed = true;
    }
    return changed;
  }

  const SegmentProblem& problem_;
  std::optional<SegmentPoint> best_;
};

}  // namespace

SegmentPoint measure_segment(const SegmentProblem& problem, const std::vector<int>& choice) {
  SegmentPoint point;
  point.choice = choice;
  const LayerOption* last = nullptr;
  for (std::size_t l = 0; l < choice.size(); ++l) {
    const LayerOption& o = problem.layers[l]->options[static_cast<std::size_t>(choice[l])];
    point.ramp += o.ramp;
    point.load += o.load;
    point.memory += o.memory;
    point.workspace = std::max(point.workspace, o.workspace);
    if (last != nullptr && problem.follows(l)) {
      point.ramp += problem.transitions->ramp(last->layout, o.layout);
      point.load += problem.transitions->load(last->layout, o.layout);
    }
    last = &o;
  }
  return point;
}

std::optional<SegmentPoint> quick_segment(const SegmentProblem& problem) {
  for (const LayerMenu* menu : problem.layers)
    if (menu->options.empty()) return std::nullopt;
  return QuickSearch(problem).run();
}

}  // namespace braid
