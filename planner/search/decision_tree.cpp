#include "planner/search/decision_tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/cost/pipeline.h"

namespace braid {

namespace {

constexpr std::int64_t kLeastRingTokens = 2048;
constexpr int kMostChunks = 4;

constexpr std::array kRules = {
    RuleInfo{Rule::tp_in_node, "tp-in-node",
             "a tensor-parallel group that leaves its node waits for the network twice a layer",
             true},
    RuleInfo{Rule::ulysses_or_ring, "ulysses-or-ring",
             "both cut the sequence; one of them at a time keeps the space small", true},
    RuleInfo{Rule::ring_needs_tokens, "ring-needs-tokens",
             "with fewer than 2048 tokens a device, ring attention cannot hide its transfers",
             true},
    RuleInfo{Rule::fill_pipeline, "fill-pipeline",
             "fewer micro-batches than stages leave stages idle for most of the iteration", true},
    RuleInfo{Rule::gpipe_memory, "gpipe-memory",
             "1F1B has the same bubble and holds activations of fewer micro-batches", true},
    RuleInfo{
        Rule::near_tensor_groups, "near-tensor-groups",
        "tensor groups talk in every layer, replicas once an iteration: the near links are theirs",
        true},
    RuleInfo{Rule::few_chunks, "few-chunks",
             "beyond 4 chunks a stage, transfers grow faster than the bubble shrinks", true},
    RuleInfo{Rule::covered_layout, "covered-layout",
             "another way to lay out the activations is no slower and no larger in any layer, and "
             "no farther from the others"},
    RuleInfo{
        Rule::unmeasured_squares, "unmeasured-squares",
        "runs on ranks that shared a GPU took longer than the price of a spatial-temporal square "
        "says: offered on PrimePar's front, or when asked for"},
};

// Whether the user fixed what the rule speaks against.
bool asks_for(const SpaceOptions& space, Rule rule) {
  const FixedParts& fixed = space.fixed;
  switch (rule) {
    case Rule::tp_in_node:
      return fixed.tp.has_value();
    case Rule::ulysses_or_ring:
      return fixed.cp && fixed.tp_kind == TensorKind::ulysses;
    case Rule::ring_needs_tokens:
      return fixed.cp.has_value();
    case Rule::fill_pipeline:
      return fixed.micro_batches || fixed.replica_samples;
    case Rule::gpipe_memory:
      return space.schedules == std::vector{ScheduleKind::gpipe};
    case Rule::few_chunks:
      return fixed.chunks.has_value();
    case Rule::unmeasured_squares:
      return fixed.tp_kind == TensorKind::spatial_temporal;
    case Rule::near_tensor_groups:
    case Rule::covered_layout:
      return false;
  }
  return false;
}

int max_experts(const Model& model) {
  std::int64_t experts = 1;
  for (const LayerType& type : model.types) experts = std::max(experts, type.shape.experts);
  return static_cast<int>(experts);
}

std::int64_t longest_sequence(const Model& model) {
  std::int64_t tokens = 0;
  for (const LayerType& type : model.types) tokens = std::max(tokens, type.shape.tokens);
  return tokens;
}

std::vector<Rule> advice(const Configuration& c) {
  std::vector<Rule> against;
  if (c.shape.micro_batches < c.shape.stages) against.push_back(Rule::fill_pipeline);
  if (c.shape.schedule == ScheduleKind::gpipe) against.push_back(Rule::gpipe_memory);
  if (c.shape.chunks > kMostChunks) against.push_back(Rule::few_chunks);
  if (c.order == MeshOrder::pp_tp_cp_dp) against.push_back(Rule::near_tensor_groups);
  return against;
}

class Builder {
 public:
  Builder(const Model& model, const Cluster& cluster, std::int64_t batch,
          const SpaceOptions& options)
      : model_(model),
        cluster_(cluster),
        batch_(batch),
        options_(options),
        blocks_(model.num_layers() - 2),
        experts_(max_experts(model)),
        tokens_(longest_sequence(model)) {}

  DecisionTree build() {
    const int devices = cluster_.num_devices();
    tree_.fixed = options_.fixed;
    for (const int stages : divisors(devices)) {
      if (options_.fixed.stages.value_or(stages) != stages) continue;
      if (stages > blocks_ || (options_.max_pp > 0 && stages > options_.max_pp)) {
        ++tree_.illegal_degrees;
        continue;
      }
      TreeBranch branch{stages, devices / stages, options_.fixed, {}};
      grow_tensor(branch);
      tree_.branches.push_back(std::move(branch));
      add_configurations(stages);
    }
    return std::move(tree_);
  }

 private:
  bool beyond(int degree, int most) const { return most > 0 && degree > most; }

  void grow_tensor(TreeBranch& branch) {
    for (int tp = 1; tp <= branch.stage_devices && branch.stage_devices % tp == 0; tp *= 2) {
      if (beyond(tp, options_.max_tp)) break;
      if (options_.fixed.tp.value_or(tp) != tp) continue;
      for (const TensorKind kind : {TensorKind::megatron, TensorKind::ulysses}) {
        if (tp == 1 && kind == TensorKind::ulysses) continue;
        grow_context(branch, {.tp = tp, .tp_kind = kind});
      }
      for (const int side : {2, 4})
        if (tp % (side * side) == 0)
          grow_context(branch, {.tp = tp, .tp_kind = TensorKind::spatial_temporal, .square = side});
    }
  }

  void grow_context(TreeBranch& branch, Strategy s) {
    const int tp = s.tp;
    const int rest = branch.stage_devices / tp;
    for (int cp = 1; cp <= rest && rest % cp == 0 && cp <= tokens_; cp *= 2) {
      if (beyond(cp, options_.max_cp)) break;
      s.cp = cp;
      s.dp = rest / cp;
      std::optional<Rule> pruned;
      if (tp > cluster_.node_width() && options_.applies(Rule::tp_in_node))
        pruned = Rule::tp_in_node;
      if (cp > 1 && s.tp_kind == TensorKind::ulysses && options_.applies(Rule::ulysses_or_ring))
        pruned = Rule::ulysses_or_ring;
      if (cp > 1 && tokens_ / cp < kLeastRingTokens && options_.applies(Rule::ring_needs_tokens))
        pruned = Rule::ring_needs_tokens;
      if (s.tp_kind == TensorKind::spatial_temporal && options_.applies(Rule::unmeasured_squares))
        pruned = Rule::unmeasured_squares;
      grow_states(branch, s, pruned);
    }
  }

  void grow_states(TreeBranch& branch, Strategy s, std::optional<Rule> pruned) {
    const int levels = s.replicas() > 1 ? 4 : 1;
    for (int ep = 1; ep <= s.dp && s.dp % ep == 0 && experts_ % ep == 0; ep *= 2)
      for (int zero = 0; zero < levels; ++zero)
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          if (recompute != Recompute::none && !options_.recompute) continue;
          s.ep = ep;
          s.zero = static_cast<Zero>(zero);
          s.recompute = recompute;
          if (!some_layer_allows(s)) continue;
          branch.leaves.push_back(
              {.strategy = s, .pruned_by = pruned, .spared_from = std::nullopt});
        }
  }

  bool some_layer_allows(const Strategy& s) const {
    return std::ranges::any_of(
        model_.types, [&](const LayerType& type) { return options_.fixed.allows(type.shape, s); });
  }

  void add_configurations(int stages) {
    for (const int micro_batches : divisors(static_cast<int>(batch_))) {
      for (const MeshOrder order : kMeshOrders) {
        if (!allowed(order, stages)) continue;
        for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                        ScheduleKind::interleaved, ScheduleKind::zero_bubble}) {
          if (!allowed(kind, stages)) continue;
          const int most = kind == ScheduleKind::interleaved ? blocks_ / stages : 1;
          for (int chunks = kind == ScheduleKind::interleaved ? 2 : 1; chunks <= most; ++chunks)
            add({{kind, stages, micro_batches, chunks}, order, batch_ / micro_batches});
        }
      }
    }
  }

  void add(const Configuration& c) {
    if (!schedulable(c.shape)) return;
    const int stage_devices = cluster_.num_devices() / c.shape.stages;
    if (!options_.fixed.allows(c.shape, c.micro_batch, stage_devices)) return;
    // Chunks of equal size from blocks of one type, so that a stage's chunks cost the same.
    if (c.shape.chunks > 1 && (blocks_ % (c.shape.stages * c.shape.chunks) != 0 || !equal_blocks()))
      return;
    for (const Rule rule : advice(c)) {
      if (options_.all_configurations || !options_.applies(rule)) continue;
      ++tree_.pruned_configurations[rule];
      return;
    }
    tree_.configurations.push_back(c);
  }

  bool equal_blocks() const {
    return std::all_of(model_.layers.begin() + 1, model_.layers.end() - 1,
                       [&](int type) { return type == model_.layers[1]; });
  }

  // Within one node all groups have the same links, so that orders differ in what changes of layout
  // move alone: under dp_cp_tp_pp as much as under pp_dp_cp_tp.
  bool allowed(MeshOrder order, int stages) const {
    if (!options_.mesh_orders.empty())
      return std::ranges::find(options_.mesh_orders, order) != options_.mesh_orders.end();
    switch (order) {
      case MeshOrder::pp_dp_cp_tp:
        return true;
      case MeshOrder::dp_cp_tp_pp:
        return cluster_.num_nodes() > 1 && stages > 1;
      case MeshOrder::pp_tp_cp_dp:
        return cluster_.num_devices() > stages;
    }
    return false;
  }

  bool allowed(ScheduleKind kind, int stages) const {
    if (stages == 1) return kind == ScheduleKind::one_f_one_b;  // all are the same
    return options_.schedules.empty() ||
           std::ranges::find(options_.schedules, kind) != options_.schedules.end();
  }

  const Model& model_;
  const Cluster& cluster_;
  std::int64_t batch_;
  const SpaceOptions& options_;
  int blocks_, experts_;
  std::int64_t tokens_;
  DecisionTree tree_;
};

}  // namespace

std::span<const RuleInfo> pruning_rules() { return kRules; }

const RuleInfo& info(Rule rule) { return *std::ranges::find(kRules, rule, &RuleInfo::rule); }

Rule rule_named(const std::string& name) {
  std::vector<std::string> names;
  for (const RuleInfo& rule : kRules) {
    if (rule.name == name) return rule.rule;
    names.emplace_back(rule.name);
  }
  const std::string near = nearest(name, names);
  throw Error({.what = fmt::format("there is no pruning rule '{}'{}", name,
                                   near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
               .where = "--no-rule",
               .fix = fmt::format("choose one of {}", join(names, ", "))});
}

bool SpaceOptions::applies(Rule rule) const {
  return std::ranges::find(rules_off, rule) == rules_off.end() && !asks_for(*this, rule);
}

std::size_t DecisionTree::num_leaves() const {
  std::size_t leaves = 0;
  for (const TreeBranch& branch : branches) leaves += branch.leaves.size();
  return leaves;
}

std::size_t DecisionTree::num_pruned() const {
  std::size_t pruned = 0;
  for (const TreeBranch& branch : branches)
    for (const TreeLeaf& leaf : branch.leaves) pruned += leaf.pruned_by ? 1 : 0;
  return pruned;
}

std::map<Rule, int> DecisionTree::left_out() const {
  std::map<Rule, int> counts = pruned_configurations;
  for (const TreeBranch& branch : branches)
    for (const TreeLeaf& leaf : branch.leaves)
      if (leaf.pruned_by) ++counts[*leaf.pruned_by];
  return counts;
}

DecisionTree build_tree(const Model& model, const Cluster& cluster, std::int64_t global_batch,
                        const SpaceOptions& options) {
  return Builder(model, cluster, global_batch, options).build();
}

std::optional<Rule> advice_against(const Configuration& configuration) {
  const std::vector<Rule> against = advice(configuration);
  if (against.empty()) return std::nullopt;
  return against.front();
}

void restore_leaves(DecisionTree& tree, const std::function<bool(const Strategy&)>& offered) {
  for (TreeBranch& branch : tree.branches)
    for (TreeLeaf& leaf : branch.leaves)
      if (leaf.pruned_by && info(*leaf.pruned_by).heuristic && offered(leaf.strategy))
        leaf.pruned_by.reset();
}

std::vector<Strategy> kept_strategies(const TreeBranch& branch) {
  std::vector<Strategy> kept;
  for (const TreeLeaf& leaf : branch.leaves)
    if (!leaf.pruned_by) kept.push_back(leaf.strategy);
  return kept;
}

const TreeBranch& branch_of(const DecisionTree& tree, int stages) {
  return *std::ranges::find(tree.branches, stages, &TreeBranch::stages);
}

}  // namespace braid
