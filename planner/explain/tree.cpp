#include "planner/explain/tree.h"

#include <fmt/core.h>

#include <map>
#include <set>

#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/sections.h"

namespace braid {
namespace {

std::map<Rule, int> pruned_by_rule(const TreeBranch& branch) {
  std::map<Rule, int> counts;
  for (const TreeLeaf& leaf : branch.leaves)
    if (leaf.pruned_by) ++counts[*leaf.pruned_by];
  return counts;
}

int num_kept(const TreeBranch& branch) {
  int kept = 0;
  for (const TreeLeaf& leaf : branch.leaves) kept += leaf.pruned_by ? 0 : 1;
  return kept;
}

// The degrees of a strategy alone; what shares them differs in ZeRO and recomputation only.
Strategy degrees(Strategy strategy) {
  strategy.zero = Zero::none;
  strategy.recompute = Recompute::none;
  return strategy;
}

std::string zero_levels(const std::set<Zero>& levels) {
  if (levels == std::set{Zero::none}) return "";
  std::vector<int> numbers;
  numbers.reserve(levels.size());
  for (const Zero zero : levels) numbers.push_back(static_cast<int>(zero));
  return fmt::format("zero {}", join(numbers, ","));
}

std::string recomputations(const std::set<Recompute>& kinds) {
  if (kinds == std::set{Recompute::none}) return "";
  std::vector<std::string> names;
  names.reserve(kinds.size());
  for (const Recompute kind : kinds) names.push_back(name_of(kind));
  return fmt::format("recompute {}", join(names, "|"));
}

// Where a leaf comes from: what rules keep needs no word.
std::string origin(const TreeLeaf& leaf) {
  if (!leaf.on_front) return "";
  if (!leaf.spared_from) return "on PrimePar's front";
  return fmt::format("on PrimePar's front, spared from {}", info(*leaf.spared_from).name);
}

// Leaves that share degrees stand in one line for each set of ZeRO levels: together the lines say
// exactly what is kept.
void add_kept(Table& table, const TreeBranch& branch, std::string_view rail) {
  std::map<Strategy, std::map<Recompute, std::set<Zero>>> kept;
  std::map<Strategy, std::string> origins;
  for (const TreeLeaf& leaf : branch.leaves) {
    if (leaf.pruned_by) continue;
    kept[degrees(leaf.strategy)][leaf.strategy.recompute].insert(leaf.strategy.zero);
    origins[degrees(leaf.strategy)] = origin(leaf);
  }
  for (const auto& [strategy, by_recompute] : kept) {
    std::map<std::set<Zero>, std::set<Recompute>> lines;
    for (const auto& [recompute, levels] : by_recompute) lines[levels].insert(recompute);
    for (const auto& [levels, kinds] : lines)
      table.add({std::string(rail), "", to_string(strategy), zero_levels(levels),
                 recomputations(kinds), origins[strategy]});
  }
}

void add_pruned(Table& table, const std::map<Rule, int>& counts, std::string_view rail) {
  for (const auto& [rule, count] : counts)
    table.add({std::string(rail), fmt::format("{}", count), std::string(info(rule).name),
               std::string(info(rule).reason)});
}

std::string branch_text(const TreeBranch& branch, const RenderOptions& options) {
  const std::string title =
      fmt::format("{} stage{} × {} device{}", branch.stages, branch.stages == 1 ? "" : "s",
                  branch.stage_devices, branch.stage_devices == 1 ? "" : "s");
  const std::map<Rule, int> counts = pruned_by_rule(branch);
  Table kept({Align::left, Align::left, Align::left, Align::left, Align::left, Align::left});
  add_kept(kept, branch, counts.empty() ? " " : "│");
  std::string text = heading(
      title,
      fmt::format("{} ways to split a block, {} kept", branch.leaves.size(), num_kept(branch)),
      options);
  text += fmt::format("  {}\n{}", counts.empty() ? "└─ kept" : "├─ kept", kept.text(options));
  if (counts.empty()) return text;
  Table pruned({Align::left, Align::right, Align::left, Align::left});
  add_pruned(pruned, counts, " ");
  return text + "  └─ pruned\n" + pruned.text(options);
}

std::string configurations_text(const DecisionTree& tree, const RenderOptions& options) {
  std::set<std::int64_t> micro_batches;
  std::set<std::string> schedules;
  std::set<std::string> orders;
  for (const Configuration& c : tree.configurations) {
    micro_batches.insert(c.micro_batch);
    schedules.insert(c.shape.stages == 1 ? "no pipeline" : name_of(c.shape.schedule));
    orders.insert(name_of(c.order));
  }
  const auto listed = [](const auto& values) {
    std::vector<std::string> parts;
    parts.reserve(values.size());
    for (const auto& value : values) parts.push_back(fmt::format("{}", value));
    return join(parts, ", ");
  };
  Table table({Align::left, Align::left});
  table.add({"schedules", listed(schedules)});
  table.add({"micro-batch sizes", listed(micro_batches)});
  table.add({"mesh orders", listed(orders)});
  Table pruned({Align::left, Align::right, Align::left, Align::left});
  add_pruned(pruned, tree.pruned_configurations, "");
  std::string text =
      heading("Configurations",
              fmt::format("{} of pipeline, batch and mesh", tree.configurations.size()), options);
  text += table.text(options);
  if (!tree.pruned_configurations.empty()) text += "  pruned\n" + pruned.text(options);
  if (tree.illegal_degrees > 0)
    text += fmt::format("  {} pipeline degree{} that devices or layers do not allow\n",
                        tree.illegal_degrees, tree.illegal_degrees == 1 ? "" : "s");
  return text;
}

}  // namespace

std::string render_tree(const DecisionTree& tree, const RenderOptions& options) {
  std::string text =
      heading("Decision tree",
              fmt::format("{} strategies, {} kept, over {} pipeline degrees", tree.num_leaves(),
                          tree.num_leaves() - tree.num_pruned(), tree.branches.size()),
              options);
  if (tree.fixed.any())
    text += fmt::format("  fixed: {}; what differs from it is not in the tree\n",
                        tree.fixed.to_string());
  for (const TreeBranch& branch : tree.branches) text += '\n' + branch_text(branch, options);
  text += '\n' + configurations_text(tree, options);
  if (!tree.without_points.empty())
    text += '\n' +
            wrap("PrimePar's front: " + tree.without_points + ".",
                 static_cast<std::size_t>(options.width), 0) +
            '\n';
  std::vector<std::string> names;
  for (const RuleInfo& rule : pruning_rules()) names.emplace_back(rule.name);
  const std::string hint = "A rule goes off with --no-rule NAME: " + join(names, ", ") + ".";
  return text + '\n' + wrap(hint, static_cast<std::size_t>(options.width), 0) + '\n';
}

Json tree_json(const DecisionTree& tree) {
  const auto counts = [](const std::map<Rule, int>& by_rule) {
    Json json = Json::object();
    for (const auto& [rule, count] : by_rule) json[std::string(info(rule).name)] = count;
    return json;
  };
  const auto front = [](const TreeBranch& branch) {
    std::map<Strategy, Json> found;
    for (const TreeLeaf& leaf : branch.leaves) {
      if (!leaf.on_front) continue;
      Json& json = found[degrees(leaf.strategy)];
      json = {{"strategy", to_string(degrees(leaf.strategy))}, {"kept", !leaf.pruned_by}};
      if (const auto rule = leaf.pruned_by ? leaf.pruned_by : leaf.spared_from)
        json["rule"] = info(*rule).name;
    }
    Json list = Json::array();
    for (auto& [strategy, json] : found) list.push_back(std::move(json));
    return list;
  };
  Json branches = Json::array();
  for (const TreeBranch& branch : tree.branches)
    branches.push_back({{"primepar_front", front(branch)},
                        {"stages", branch.stages},
                        {"stage_devices", branch.stage_devices},
                        {"strategies", branch.leaves.size()},
                        {"kept", num_kept(branch)},
                        {"pruned", counts(pruned_by_rule(branch))}});
  return {{"fixed", tree.fixed.to_string()},
          {"branches", std::move(branches)},
          {"without_points", tree.without_points},
          {"configurations", tree.configurations.size()},
          {"pruned_configurations", counts(tree.pruned_configurations)}};
}

}  // namespace braid
