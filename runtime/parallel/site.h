#pragma once
// Where one rank stands in one layer: its coordinates, the groups it talks to, the tokens and
// samples it holds. Everything a block must know to be written once, for any strategy.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/model/layer.h"
#include "planner/plan/plan.h"
#include "planner/strategy/mesh.h"
#include "runtime/comm/group.h"
#include "runtime/parallel/layout.h"

namespace braid::parallel {

// What tensors are made of.
struct Numerics {
  at::ScalarType compute = at::kBFloat16;  // weights and activations
  at::ScalarType gradient = at::kFloat;    // accumulated gradients
  at::ScalarType state = at::kFloat;       // master weights and moments
  at::Device device = at::kCPU;
  bool has_master() const { return compute != state; }
};
// fp64 for proofs, fp32, or bf16 with fp32 states.
Numerics numerics_of(Precision precision, Precision gradient_precision, at::Device device);
Numerics fp64_numerics(at::Device device);

using GroupPtr = std::shared_ptr<comm::Group>;

// Groups by purpose and members (ids in the world), each made once. Making one is collective over
// its members, so all ranks must ask in the same order.
class Groups {
 public:
  explicit Groups(comm::Group& world) : world_(&world) {}
  GroupPtr among(const std::vector<int>& members, const std::string& purpose = "layers");
  comm::Group& world() const { return *world_; }

 private:
  comm::Group* world_;
  std::map<std::pair<std::string, std::vector<int>>, GroupPtr> made_;
};

struct Site {
  LayerShape shape;
  Strategy strategy;
  Numerics numerics;
  std::int64_t samples = 1;  // of a micro-batch, on this rank
  bool causal = true;        // the model's attention: decides how a ring shares the tokens

  int data_rank = 0, context_rank = 0, tensor_rank = 0, expert_rank = 0;
  GroupPtr tensor;           // the tensor-parallel ranks, whatever its kind
  GroupPtr context;          // the ring
  GroupPtr replicas;         // hold the same parameters
  GroupPtr experts;          // share the experts
  GroupPtr expert_replicas;  // hold the same experts
  GroupPtr same_kv;          // hold the same key-value heads under megatron; size 1: nobody else

  bool megatron() const { return strategy.tensor_split() > 1; }
  bool ulysses() const { return strategy.tp > 1 && !megatron(); }
  int tensor_split() const { return strategy.tensor_split(); }
  // Position among the ranks that cut the matrices.
  int split_rank() const { return megatron() ? tensor_rank : 0; }

  // Tokens between layers ("narrow") and inside a tensor-parallel one ("wide"), as global
  // positions.
  std::vector<Segment> narrow_tokens, wide_tokens;
  // The ring's ranks' wide tokens, by context rank.
  std::vector<std::vector<Segment>> ring_tokens;
  // The tokens that this rank's matrices see.
  const std::vector<Segment>& inner_tokens() const {
    return megatron() ? wide_tokens : narrow_tokens;
  }
};

std::int64_t count(const std::vector<Segment>& tokens);
// [tokens] int64 on the CPU.
at::Tensor positions_of(const std::vector<Segment>& tokens);

// The layout of the activation between layers: [tokens, samples, hidden].
Layout activation_layout(const Strategy& strategy, const Mesh& mesh, std::int64_t tokens,
                         bool causal);

// This rank's stage, and its place in it.
int local_rank(int device, const Mesh& mesh);
int device_at(int stage, int local, const Mesh& mesh);

// Asks `groups` for all groups of a layer, in a fixed order.
Site make_site(const Plan& plan, int layer, const Strategy& strategy, int device, bool causal,
               const Numerics& numerics, Groups& groups);

}  // namespace braid::parallel
