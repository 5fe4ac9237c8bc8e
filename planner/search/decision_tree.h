#pragma once
// The space of plans, built as a tree: pipeline degree first, then one axis of the stage's devices
// a level. Branches are pruned by named rules, each with its reason, each can be switched off. A
// search that proves its result prunes by rules that are proven: the others only say what it looks
// at first.

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/search/fixed_parts.h"
#include "planner/strategy/mesh.h"
#include "planner/strategy/pipeline.h"
#include "planner/strategy/strategy.h"

namespace braid {

enum class Rule {
  tp_in_node,
  ulysses_or_ring,
  ring_needs_tokens,
  fill_pipeline,
  gpipe_memory,
  near_tensor_groups,
  few_chunks,
  covered_layout,
  unmeasured_squares,
};
struct RuleInfo {
  Rule rule;
  std::string_view name;
  std::string_view reason;
  bool heuristic = false;  // mostly right: there are questions whose best plan it would prune
};
std::span<const RuleInfo> pruning_rules();
const RuleInfo& info(Rule rule);
Rule rule_named(const std::string& name);  // Error lists the names

// What the user restricts and which rules are off.
struct SpaceOptions {
  std::vector<Rule> rules_off;
  std::vector<ScheduleKind> schedules;     // empty: all
  std::vector<MeshOrder> mesh_orders;      // empty: all
  int max_tp = 0, max_cp = 0, max_pp = 0;  // 0: no limit
  bool recompute = true;
  bool even_cuts = false;           // stages of equal size only
  bool primepar = true;             // try what is on the front of PrimePar's operators
  bool all_configurations = false;  // heuristics prune none
  FixedParts fixed;
  // Whether the rule prunes: it is on, and what it speaks against is not fixed.
  bool applies(Rule rule) const;
};

// One choice of everything that is not a layer's strategy or a cut.
struct Configuration {
  PipelineShape shape;
  MeshOrder order = MeshOrder::pp_dp_cp_tp;
  std::int64_t micro_batch = 1;
  constexpr auto operator<=>(const Configuration&) const = default;
};

struct TreeLeaf {
  Strategy strategy;
  std::optional<Rule> pruned_by;
  // Operator by operator nothing else beats it in time and memory (primepar_points.h), and the rule
  // that would have pruned it.
  bool on_front = false;
  std::optional<Rule> spared_from;
};
// A pipeline degree and all ways to split a block over its stage's devices.
struct TreeBranch {
  int stages = 1;
  int stage_devices = 1;
  FixedParts fixed;  // DecisionTree::fixed
  std::vector<TreeLeaf> leaves;
};
struct DecisionTree {
  FixedParts fixed;  // what each layer and configuration keeps
  std::vector<TreeBranch> branches;
  std::map<Rule, int> pruned_configurations;
  std::vector<Configuration> configurations;
  int illegal_degrees = 0;     // pipeline degrees that the devices or the blocks do not allow
  std::string without_points;  // why PrimePar has no point here, or not all

  std::size_t num_leaves() const;
  std::size_t num_pruned() const;
  // Leaves and configurations that are not searched, by the rule that pruned them.
  std::map<Rule, int> left_out() const;
};

DecisionTree build_tree(const Model& model, const Cluster& cluster, std::int64_t global_batch,
                        const SpaceOptions& options);
// The heuristic that speaks against a configuration, if any.
std::optional<Rule> advice_against(const Configuration& configuration);
// Brings leaves back that only a heuristic has pruned, where `offered` allows.
void restore_leaves(DecisionTree& tree, const std::function<bool(const Strategy&)>& offered);
// The strategies of a branch that survive.
std::vector<Strategy> kept_strategies(const TreeBranch& branch);
const TreeBranch& branch_of(const DecisionTree& tree, int stages);

}  // namespace braid
