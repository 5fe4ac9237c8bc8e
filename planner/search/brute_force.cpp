#include "planner/search/brute_force.h"

#include <algorithm>

namespace braid {

namespace {

class Enumeration {
 public:
  explicit Enumeration(const PipelineProblem& problem) : problem_(problem) {}

  std::optional<PipelineSolution> run() {
    choose_cut(0, 0, {});
    return best_;
  }

 private:
  using Layers = std::vector<const LayerMenu*>;

  struct Place {
    std::size_t stage;
    std::size_t end;  // blocks in this stage and those before it
  };

  void choose_cut(std::size_t stage, std::size_t begin, const PathState& path) {
    if (stage == problem_.stages.size()) {
      if (begin == problem_.blocks.size()) finish(path);
      return;
    }
    const auto unit = static_cast<std::size_t>(problem_.multiple);
    for (std::size_t end = begin + unit; end <= problem_.blocks.size(); end += unit) {
      if (!problem_.cuts.empty() && static_cast<int>(end - begin) != problem_.cuts[stage]) continue;
      current_.blocks.push_back(static_cast<int>(end - begin));
      choose_options({stage, end}, layers_between(stage, begin, end), nullptr, {}, path);
      current_.blocks.pop_back();
    }
  }

  Layers layers_between(std::size_t stage, std::size_t begin, std::size_t end) const {
    const StageMenus& menus = problem_.stages[stage];
    Layers layers;
    for (const LayerMenu& menu : menus.before) layers.push_back(&menu);
    for (std::size_t b = begin; b < end; ++b)
      layers.push_back(&menus.blocks[static_cast<std::size_t>(problem_.blocks[b])]);
    for (const LayerMenu& menu : menus.after) layers.push_back(&menu);
    return layers;
  }

  void choose_options(const Place& place, const Layers& layers, const LayerOption* last,
                      const SegmentPoint& chosen, const PathState& path) {
    const StageMenus& menus = problem_.stages[place.stage];
    if (chosen.choice.size() == layers.size()) {
      if (chosen.memory + chosen.workspace > menus.budget) return;
      current_.stages.push_back(chosen);
      choose_cut(
          place.stage + 1, place.end,
          extend(path, chosen.ramp + menus.ramp, chosen.load + menus.load, problem_.ramp_after));
      current_.stages.pop_back();
      return;
    }
    int index = 0;
    for (const LayerOption& option : layers[chosen.choice.size()]->options) {
      SegmentPoint next = chosen;
      next.ramp += option.ramp;
      next.load += option.load;
      if (last != nullptr) {
        next.ramp += menus.transitions.ramp(last->layout, option.layout);
        next.load += menus.transitions.load(last->layout, option.layout);
      }
      next.memory += option.memory;
      next.workspace = std::max(next.workspace, option.workspace);
      next.choice.push_back(index++);
      choose_options(place, layers, &option, next, path);
    }
  }

  void finish(const PathState& path) {
    const double time = path.time(problem_.ramp_after);
    if (best_ && best_->time <= time) return;
    best_ = current_;
    best_->time = time;
  }

  const PipelineProblem& problem_;
  PipelineSolution current_;
  std::optional<PipelineSolution> best_;
};

}  // namespace

std::optional<PipelineSolution> brute_force(const PipelineProblem& problem) {
  return Enumeration(problem).run();
}

}  // namespace braid
