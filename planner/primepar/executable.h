#pragma once
// Where partitions of operators and strategies of layers meet. The runtime splits all operators of
// a layer by one mesh, so at each device bit it has one role for all of them; of the optimiser's
// plans those can be run that have the same.

#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "planner/primepar/optimize.h"
#include "planner/strategy/mesh.h"

namespace braid {

// The residual stream among ranks that cut heads and feed-forward. The runtime cuts its tokens
// there; that moves as many bytes as copies do (a reduce-scatter and an all-gather are an
// all-reduce) and keeps fewer, so a plan with copies stands for the same strategy.
enum class Residual { cut, copied };

// A strategy without ZeRO and recomputation, which the operators' costs do not know.
struct ExecutableLayer {
  Strategy strategy;
  MeshOrder order = MeshOrder::pp_dp_cp_tp;
  Residual residual = Residual::cut;
  PrimeparPlan plan;
};

// The partition of every operator of a layer, in the order of layer_graph.
std::vector<Partition> partitions_of(const Strategy& strategy, MeshOrder order, Residual residual,
                                     std::int64_t micro_batch);

// All that the machine's devices and the layer's sizes allow, priced operator by operator.
std::vector<ExecutableLayer> executable_layers(const PrimeparTask& task,
                                               const PrimeparMachine& machine);
// Those that none of them beats in time, states, stash and workspace at once; the fastest first.
std::vector<ExecutableLayer> executable_front(std::vector<ExecutableLayer> layers);

// Finds the layer that runs a plan.
class ExecutableIndex {
 public:
  ExecutableIndex(std::vector<ExecutableLayer> layers, const PrimeparMachine& machine);

  const std::vector<ExecutableLayer>& layers() const { return layers_; }
  const ExecutableLayer* find(std::span<const Partition> partitions) const;  // none: nullptr

 private:
  // What one device bit does in an operator: the dim that it cuts, or its part in a square.
  using Role = std::tuple<Dim, int, Rotation, bool>;
  // Of every bit whether it crosses nodes, and its roles in all operators. Bits that lie alike can
  // change places, so the list is sorted.
  using Signature = std::vector<std::pair<bool, std::vector<Role>>>;
  Signature signature(std::span<const Partition> partitions) const;

  std::vector<bool> crosses_;  // by device bit
  std::vector<ExecutableLayer> layers_;
  std::map<Signature, std::size_t> by_signature_;
};

}  // namespace braid
