#include "planner/search/primepar_points.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "planner/plan/legal.h"
#include "planner/search/timed_space.h"

namespace braid {

namespace {

bool is_square(const Strategy& s) { return s.tp_kind == TensorKind::spatial_temporal; }

// Strategies without ZeRO, experts and recomputation, which operators' costs do not know.
Strategy degrees(Strategy s) {
  s.zero = Zero::none;
  s.ep = 1;
  s.recompute = Recompute::none;
  return s;
}

class Fronts {
 public:
  Fronts(const DecisionTree& tree, const Model& model, const Cluster& cluster,
         const PointsOptions& options)
      : tree_(tree), cluster_(cluster), options_(options) {
    for (const LayerType& type : model.types) {
      if (type.shape.kind != LayerKind::block) continue;
      if (auto fault = graph_fault(type.shape)) {
        why_ = std::move(*fault);
      } else {
        blocks_.push_back(type.shape);
      }
    }
  }

  const std::string& why() const { return why_; }

  std::set<Strategy> of(const TreeBranch& branch) {
    std::set<Strategy> front;
    if (branch.stage_devices == 1 || blocks_.empty()) return front;
    if (auto fault = PrimeparMachine::fault(cluster_, branch.stage_devices)) {
      why_ = std::move(fault->what);
      return front;
    }
    const PrimeparMachine machine(shrink(cluster_, branch.stage_devices), options_.precision, {},
                                  NetworkShare::of_members, options_.profile);
    for (const LayerShape& block : blocks_)
      for (const auto& [micro_batch, micro_batches] : batches(branch)) {
        look(options_.watch);
        add(front, {block, 1, micro_batch, micro_batches, options_.precision}, machine);
      }
    return front;
  }

 private:
  std::set<std::pair<std::int64_t, int>> batches(const TreeBranch& branch) const {
    std::set<std::pair<std::int64_t, int>> found;
    for (const Configuration& c : tree_.configurations)
      if (c.shape.stages == branch.stages) found.emplace(c.micro_batch, c.shape.micro_batches);
    return found;
  }

  static void add(std::set<Strategy>& front, const PrimeparTask& task,
                  const PrimeparMachine& machine) {
    std::vector<ExecutableLayer> layers = legal_layers(task, machine);
    std::erase_if(
        layers, [](const ExecutableLayer& layer) { return layer.order != MeshOrder::pp_dp_cp_tp; });
    for (const ExecutableLayer& layer : executable_front(std::move(layers)))
      front.insert(layer.strategy);
  }

  const DecisionTree& tree_;
  const Cluster& cluster_;
  const PointsOptions& options_;
  std::vector<LayerShape> blocks_;
  std::string why_;
};

}  // namespace

std::vector<ExecutableLayer> legal_layers(const PrimeparTask& task,
                                          const PrimeparMachine& machine) {
  std::vector<ExecutableLayer> layers = executable_layers(task, machine);
  std::erase_if(layers, [&](const ExecutableLayer& layer) {
    return strategy_fault(task.block, layer.strategy, task.batch).has_value();
  });
  return layers;
}

void add_primepar_points(DecisionTree& tree, const Model& model, const Cluster& cluster,
                         const PointsOptions& options) {
  // The price of a split that nobody has timed is a guess, and a rule has a reason.
  const auto priced = [&](const Strategy& s) {
    return options.profile == nullptr || is_timed(*options.profile, s);
  };
  Fronts fronts(tree, model, cluster, options);
  int marked = 0;
  std::set<std::string> untimed;
  for (TreeBranch& branch : tree.branches) {
    const std::set<Strategy> front = fronts.of(branch);
    for (TreeLeaf& leaf : branch.leaves) {
      if (!front.contains(degrees(leaf.strategy))) continue;
      leaf.on_front = true;
      ++marked;
      if (!leaf.pruned_by) continue;
      if (priced(leaf.strategy)) {
        leaf.spared_from = std::exchange(leaf.pruned_by, std::nullopt);
      } else {
        untimed.insert(to_string(degrees(leaf.strategy)));
      }
    }
  }
  if (!untimed.empty()) {
    tree.without_points = fmt::format(
        "the profile has not timed {} of its splits ({}{}), so that rules hold for them",
        untimed.size(), *untimed.begin(), untimed.size() > 1 ? ", …" : "");
  } else if (marked == 0) {
    tree.without_points = fronts.why();
  }
}

DecisionTree without_points(DecisionTree tree) {
  for (TreeBranch& branch : tree.branches)
    for (TreeLeaf& leaf : branch.leaves) {
      if (leaf.spared_from) leaf.pruned_by = leaf.spared_from;
      if (is_square(leaf.strategy)) leaf.pruned_by = Rule::unmeasured_squares;
    }
  return tree;
}

}  // namespace braid
