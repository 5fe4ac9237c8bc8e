#include "planner/search/stage_prices.h"

#include <algorithm>
#include <limits>
#include <set>

#include "planner/plan/legal.h"
#include "planner/search/watch.h"

namespace braid {

namespace {

// Whether a is at least as good as b in every respect any stage could ask for.
bool covers(const LayerCost& a, const LayerCost& b) {
  const LayerMemory& m = a.memory;
  const LayerMemory& n = b.memory;
  return a.time.forward() <= b.time.forward() &&
         a.time.backward_input() <= b.time.backward_input() &&
         a.time.backward_weight() <= b.time.backward_weight() &&
         a.time.once_reduce() <= b.time.once_reduce() &&
         a.time.once_update() <= b.time.once_update() && m.states() <= n.states() &&
         m.weights + m.optimizer <= n.weights + n.optimizer && m.constants <= n.constants &&
         m.activations <= n.activations && m.deferred <= n.deferred && m.in_turn >= n.in_turn &&
         m.workspace <= n.workspace;
}

class Pricer {
 public:
  Pricer(const PricingTask& task, const StrategyList& list, const StrategyFilter& filter,
         const StageSite& site)
      : task_(task), list_(list), filter_(filter), site_(site) {}

  StagePrices run() {
    for (const int type : std::set<int>(task_.model.layers.begin(), task_.model.layers.end()))
      price(type);
    price_changes();
    if (task_.drop_covered_layouts) drop_covered_layouts();
    count_layouts_anew();
    return std::move(prices_);
  }

 private:
  const LayerShape& shape(int type) const {
    return task_.model.types[static_cast<std::size_t>(type)].shape;
  }

  bool offered(const Strategy& s, const LayerShape& shape) const {
    const bool block = shape.kind == LayerKind::block || shape.kind == LayerKind::merge;
    const auto& wanted = block ? filter_.blocks : filter_.outside;
    return (!wanted || wanted(s)) && list_.fixed.allows(shape, s, site_.micro_batch) &&
           !strategy_fault(shape, s, site_.micro_batch).has_value();
  }

  // Without those that another of the same layout covers.
  void price(int type) {
    std::vector<PricedStrategy>& kept = prices_.layers[type];
    for (std::size_t i = 0; i < list_.strategies.size(); ++i) {
      look(task_.watch);
      const Strategy& s = list_.strategies[i];
      if (!offered(s, shape(type))) continue;
      const PricedStrategy candidate{static_cast<int>(i), list_.layout[i],
                                     task_.cost.layer(type, s, site_)};
      ++prices_.priced;
      const auto same_layout = [&](const PricedStrategy& other) {
        return other.layout == candidate.layout;
      };
      if (std::ranges::any_of(kept, [&](const PricedStrategy& k) {
            return same_layout(k) && covers(k.cost, candidate.cost);
          }))
        continue;
      std::erase_if(kept, [&](const PricedStrategy& k) {
        return same_layout(k) && covers(candidate.cost, k.cost);
      });
      kept.push_back(candidate);
    }
  }

  // The least over the types, and over ways through other layouts, so that the search never
  // overestimates.
  void price_changes() {
    const auto layouts = static_cast<int>(list_.layouts.size());
    prices_.layouts = layouts;
    prices_.changes.assign(list_.layouts.size() * list_.layouts.size(),
                           std::numeric_limits<double>::infinity());
    std::set<std::int64_t> seen;  // bytes that types hand on
    for (const auto& [type, options] : prices_.layers) {
      const LayerKind kind = shape(type).kind;
      if (kind == LayerKind::head) continue;  // hands nothing on
      if (task_.recurrence
              ? kind == LayerKind::embedding
              : !seen.insert(boundary_bytes(shape(type), Precision::bf16).value()).second)
        continue;
      for (int from = 0; from < layouts; ++from) {
        look(task_.watch);
        for (int to = 0; to <= from; ++to) {
          const double there = change(type, from, to);
          // A redistribution takes as long as its reverse.
          const double back = task_.recurrence ? change(type, to, from) : there;
          prices_.change(from, to) = std::min(prices_.change(from, to), there);
          prices_.change(to, from) = std::min(prices_.change(to, from), back);
        }
      }
    }
    for (int by = 0; by < layouts; ++by)
      for (int from = 0; from < layouts; ++from)
        for (int to = 0; to < layouts; ++to)
          prices_.change(from, to) =
              std::min(prices_.change(from, to), prices_.change(from, by) + prices_.change(by, to));
  }

  double change(int type, int from, int to) const {
    const ActivationLayout& a = list_.layouts[static_cast<std::size_t>(from)];
    const ActivationLayout& b = list_.layouts[static_cast<std::size_t>(to)];
    return task_.recurrence ? task_.cost.recurrence_change(type, a, b, site_) / 2
                            : task_.cost.redistribute(type, a, b, site_);
  }

  // Rule::covered_layout: a plan loses nothing when all that lies in `worse` moves to `better`.
  void drop_covered_layouts() {
    std::set<int> covered;
    for (int worse = 0; worse < prices_.layouts; ++worse)
      for (int better = 0; better < prices_.layouts; ++better)
        if (worse != better && !covered.contains(better) && covers_layout(better, worse)) {
          covered.insert(worse);
          break;
        }
    for (auto& [type, options] : prices_.layers)
      std::erase_if(options, [&](const PricedStrategy& p) { return covered.contains(p.layout); });
  }

  bool covers_layout(int better, int worse) const {
    for (int other = 0; other < prices_.layouts; ++other)
      if (other != better && other != worse &&
          (prices_.change(other, better) > prices_.change(other, worse) ||
           prices_.change(better, other) > prices_.change(worse, other)))
        return false;
    return std::ranges::all_of(prices_.layers, [&](const auto& layer) {
      const std::vector<PricedStrategy>& options = layer.second;
      return std::ranges::all_of(options, [&](const PricedStrategy& w) {
        return w.layout != worse || std::ranges::any_of(options, [&](const PricedStrategy& b) {
                 return b.layout == better && covers(b.cost, w.cost);
               });
      });
    });
  }

  // Leaves those in which no layer is offered.
  void count_layouts_anew() {
    std::map<int, int> used;  // and their new numbers
    for (const auto& [type, options] : prices_.layers)
      for (const PricedStrategy& p : options) used.emplace(p.layout, 0);
    int count = 0;
    for (auto& [layout, number] : used) number = count++;
    std::vector<double> changes;
    for (const auto& [from, i] : used)
      for (const auto& [to, j] : used) changes.push_back(prices_.change(from, to));
    for (auto& [type, options] : prices_.layers)
      for (PricedStrategy& p : options) p.layout = used.at(p.layout);
    prices_.layouts = count;
    prices_.changes = std::move(changes);
  }

  const PricingTask& task_;
  const StrategyList& list_;
  const StrategyFilter& filter_;
  const StageSite& site_;
  StagePrices prices_;
};

}  // namespace

StrategyList strategies_of(const TreeBranch& branch, const CostModel& cost) {
  StrategyList list;
  list.fixed = branch.fixed;
  for (const Strategy& s : kept_strategies(branch)) {
    if (!cost.prices(s)) continue;
    const ActivationLayout layout = layout_of(s);
    auto found = std::ranges::find(list.layouts, layout);
    if (found == list.layouts.end()) found = list.layouts.insert(found, layout);
    list.strategies.push_back(s);
    list.layout.push_back(static_cast<int>(found - list.layouts.begin()));
  }
  return list;
}

StagePrices price_site(const PricingTask& task, const StrategyList& list,
                       const StrategyFilter& filter, const StageSite& site) {
  return Pricer(task, list, filter, site).run();
}

const StagePrices& PriceCache::of(const TreeBranch& branch, const StrategyList& list,
                                  const StageSite& site) {
  Entry* entry = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<Entry>& slot = entries_[{branch.stages, task_.cost.stage_class(site)}];
    if (!slot) slot = std::make_unique<Entry>();
    entry = slot.get();
  }
  // Where the search is stopped, nothing is entered.
  const std::scoped_lock lock(entry->mutex);
  if (!entry->prices) entry->prices = price_site(task_, list, {}, site);
  return *entry->prices;
}

std::int64_t PriceCache::priced() const {
  const std::scoped_lock lock(mutex_);
  std::int64_t priced = 0;
  for (const auto& [key, entry] : entries_) {
    const std::scoped_lock entry_lock(entry->mutex);
    if (entry->prices) priced += entry->prices->priced;
  }
  return priced;
}

}  // namespace braid
