#pragma once
// Random pipelines, small enough to enumerate and with everything in them that makes a search hard:
// trades of time for memory, stages that differ, changes of layout, ties.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "planner/search/stage_search.h"

namespace braid {

// What a family of random problems has in common.
struct ProblemFamily {
  const char* fact;
  int most_layers = 6;   // blocks, embedding and head together
  int most_options = 6;  // of a menu
  int most_types = 3;    // of blocks
  int most_stages = 4;
  int layouts = 1;
  int multiple = 1;
  bool outside = true;     // embedding and head, in half of the problems
  bool ties = false;       // times and bytes from a handful of values
  bool bytes = false;      // memory as large as a device's, not a few units
  bool odd_ramps = false;  // ramps anywhere below loads instead of near one proportion
  bool gaps = false;       // some menus are empty on some stages
};

class ProblemDice {
 public:
  ProblemDice(const ProblemFamily& family, std::uint64_t seed) : family_(family), engine_(seed) {}

  PipelineProblem problem() {
    PipelineProblem result;
    result.ramp_after = chance(0.5);
    result.multiple = family_.multiple;
    const bool outside = family_.outside && chance(0.5);
    const int most_units = (family_.most_layers - (outside ? 2 : 0)) / family_.multiple;
    const int units = std::max(integer(1, most_units), integer(1, most_units));
    const int most_stages = std::min(units, family_.most_stages);
    const int stages = std::max(integer(1, most_stages), integer(1, most_stages));
    // Enumeration has to come to an end.
    const int layers = units * family_.multiple + (outside ? 2 : 0);
    most_options_ =
        std::min(family_.most_options, static_cast<int>(std::pow(kMostChoices, 1.0 / layers)));
    const int types = integer(1, family_.most_types);
    for (int b = 0; b < units * family_.multiple; ++b)
      result.blocks.push_back(chance(0.5) && b > 0 ? result.blocks.back() : integer(0, types - 1));
    make_base(types);
    for (int s = 0; s < stages; ++s) result.stages.push_back(stage(s, stages, types, outside));
    // What a stage hands on takes time whatever is chosen; the last one hands on nothing.
    if (chance(0.5))
      for (int s = 0; s + 1 < stages; ++s) {
        StageMenus& menus = result.stages[static_cast<std::size_t>(s)];
        menus.ramp = seconds(0, 0.5);
        menus.load = result.ramp_after ? menus.ramp : 0;
      }
    set_budgets(result);
    return result;
  }

 private:
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return between(0, 1) < p; }

  // Time that options of every stage share, so that stages resemble each other as real ones do.
  void make_base(int types) {
    proportion_ = between(0.05, 1);
    base_.clear();
    for (int menu = 0; menu < types + 2; ++menu) {
      LayerMenu options;
      const int count = integer(1, most_options_);
      const double time = seconds(0.5, 4);
      const double memory = between(2, 12);
      for (int i = 0; i < count; ++i) {
        // Less memory for more time, more or less.
        const double thrift = between(0, 1);
        LayerOption o;
        o.load = family_.ties ? integer(1, 4) : time * (0.8 + thrift * between(0.2, 1));
        o.ramp = family_.odd_ramps ? o.load * between(0, 1)
                                   : o.load * std::min(1.0, proportion_ * between(0.9, 1.1));
        if (family_.ties) o.ramp = std::min(o.load, static_cast<double>(integer(0, 2)));
        o.memory = units(memory * (1.2 - thrift) * between(0.8, 1.2));
        o.workspace = chance(0.5) ? 0 : units(memory * between(0, 1));
        o.layout = integer(0, family_.layouts - 1);
        o.strategy = i;
        options.options.push_back(o);
      }
      base_.push_back(options);
    }
  }

  double seconds(double low, double high) {
    return family_.ties ? integer(1, 4) : between(low, high);
  }
  std::int64_t units(double amount) const {
    const double scale = family_.bytes ? 1.2345678e9 : family_.ties ? 1.0 : 16.0;
    return std::llround(amount * scale);
  }

  // The same options on another stage: more in flight in front, other devices now and then.
  LayerMenu placed(const LayerMenu& base, int stage, int stages, double slowness) {
    LayerMenu menu = base;
    for (LayerOption& o : menu.options) {
      o.load *= slowness;
      o.ramp *= slowness;
      if (!family_.ties) o.memory = o.memory * (2 + stages - stage) / 3;
    }
    if (family_.gaps && chance(0.15)) menu.options.clear();
    return menu;
  }

  StageMenus stage(int index, int stages, int types, bool outside) {
    StageMenus menus;
    const double slowness = !family_.ties && chance(0.3) ? between(1, 3) : 1.0;
    const auto place = [&](int menu) {
      return placed(base_[static_cast<std::size_t>(menu)], index, stages, slowness);
    };
    for (int t = 0; t < types; ++t) menus.blocks.push_back(place(t));
    if (outside && index == 0) menus.before.push_back(place(types));
    if (outside && index + 1 == stages) menus.after.push_back(place(types + 1));
    menus.transitions = transitions(slowness);
    return menus;
  }

  // Ramp and load of a change stand in one proportion, as their weights in a schedule do.
  Transitions transitions(double slowness) {
    Transitions table(family_.layouts);
    for (int from = 0; from < family_.layouts; ++from)
      for (int to = from + 1; to < family_.layouts; ++to) {
        const double load = family_.ties ? integer(0, 2) : slowness * between(0, 1.5);
        const double back = chance(0.5) || family_.ties ? load : load * between(0.8, 1.2);
        const double share = family_.ties        ? 0.5
                             : family_.odd_ramps ? 0.2 * proportion_
                                                 : proportion_;
        table.set(from, to, share * load, load);
        table.set(to, from, share * back, back);
      }
    // No way through a third layout is shorter.
    for (int via = 0; via < family_.layouts; ++via)
      for (int from = 0; from < family_.layouts; ++from)
        for (int to = 0; to < family_.layouts; ++to)
          if (table.load(from, via) + table.load(via, to) < table.load(from, to))
            table.set(from, to, table.ramp(from, via) + table.ramp(via, to),
                      table.load(from, via) + table.load(via, to));
    return table;
  }

  // From so much that everything fits to so little that nothing does.
  void set_budgets(PipelineProblem& problem) {
    const double plenty = between(0.2, 1.6);
    const auto stages = static_cast<double>(problem.stages.size());
    for (StageMenus& menus : problem.stages) {
      double need = 0;
      const auto add = [&](const LayerMenu& menu, double times) {
        double most = 0;
        for (const LayerOption& o : menu.options)
          most = std::max(most,
                          static_cast<double>(o.memory) + 0.25 * static_cast<double>(o.workspace));
        need += times * most;
      };
      for (const int type : problem.blocks)
        add(menus.blocks[static_cast<std::size_t>(type)], 1 / stages);
      for (const LayerMenu& menu : menus.before) add(menu, 1);
      for (const LayerMenu& menu : menus.after) add(menu, 1);
      menus.budget = std::llround(need * plenty * (chance(0.5) ? 1.0 : between(0.7, 1.3)));
    }
  }

  static constexpr double kMostChoices = 4100;  // of options for all layers: 4 for each of 6

  ProblemFamily family_;
  std::mt19937_64 engine_;
  int most_options_ = 1;
  double proportion_ = 1;
  std::vector<LayerMenu> base_;  // block types, then embedding and head
};

}  // namespace braid
