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
#include "planner/strategy/token_chunks.h"
#include "runtime/comm/group.h"
#include "runtime/parallel/layout.h"

namespace braid::parallel {

// What tensors are made of.
struct Numerics {
  at::ScalarType compute = at::kBFloat16;  // weights and activations
  at::ScalarType gradient = at::kFloat;    // accumulated gradients
  at::ScalarType state = at::kFloat;       // master weights and moments
  at::Device device = at::kCPU;
  bool fp8 = false;                           // products of blocks round their factors to 8 bits
  std::int64_t chunk_rows = kLeastChunkRows;  // of a chunk under megatron, at least
  bool has_master() const { return compute != state; }
};
// fp32, or bf16 with fp32 states, also where products are in fp8.
Numerics numerics_of(Precision precision, Precision gradient_precision, at::Device device);
// For proofs, on models of any size: whatever can pass in chunks does.
Numerics fp64_numerics(at::Device device);

using GroupPtr = std::shared_ptr<comm::Group>;

// Groups by purpose and members (ids in the world), each made once. Making one is collective over
// its members, so all ranks must ask in the same order.
class Groups {
 public:
  explicit Groups(comm::Group& world) : world_(&world) {}
  GroupPtr among(const std::vector<int>& members, const std::string& purpose = "layers",
                 comm::GroupUse use = comm::GroupUse::collectives);
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
  int chunks = 1;            // in which the tokens pass through a megatron group

  int data_rank = 0, context_rank = 0, tensor_rank = 0, expert_rank = 0;
  GroupPtr tensor;           // the tensor-parallel ranks, whatever its kind
  GroupPtr context;          // the ring
  GroupPtr replicas;         // hold the same parameters
  GroupPtr experts;          // share the experts
  GroupPtr expert_replicas;  // hold the same experts
  GroupPtr same_kv;          // hold the same key-value heads under megatron; size 1: nobody else

  // The tensor axis as squares, each with its rows and columns; under megatron of one device each.
  int outer_rank = 0, row = 0, column = 0;
  GroupPtr outer;     // the same place in all squares
  GroupPtr square;    // row by row
  GroupPtr same_row;  // by column
  GroupPtr same_column;
  GroupPtr same_diagonal;  // of all squares: hold the same part of the hidden width

  bool megatron() const { return strategy.tp > 1 && strategy.tp_kind == TensorKind::megatron; }
  bool ulysses() const { return strategy.tp > 1 && strategy.tp_kind == TensorKind::ulysses; }
  bool in_square() const { return strategy.square > 1; }
  bool as_published() const { return strategy.variant == SquareVariant::paper; }
  // Whether the rows of the square share the tokens of each sample, and not the samples.
  bool rows_share_tokens = false;
  int tensor_split() const { return strategy.tensor_split(); }
  // Position among the ranks that cut heads and feed-forward columns.
  int split_rank() const { return ulysses() ? 0 : outer_rank * strategy.square + column; }
  // The part of the hidden width that this rank holds between layers, and where it begins.
  int diagonal() const { return (row + column) % strategy.square; }
  std::int64_t hidden() const { return shape.hidden / strategy.square; }
  std::int64_t hidden_begin() const { return diagonal() * hidden(); }
  std::int64_t first_sample = 0;  // of this rank, counted within the micro-batch

  // Tokens between layers ("narrow") and inside a tensor-parallel one ("wide"), as global
  // positions.
  std::vector<Segment> narrow_tokens, wide_tokens;
  // The keys that go around with each of the ring's ranks, by context rank: its wide tokens, or
  // those of all rows where they share them, in the order of positions.
  std::vector<std::vector<Segment>> ring_tokens;
  // Where rows share the tokens: the wide tokens of each row of this square.
  std::vector<std::vector<Segment>> row_tokens;
  // The tokens that this rank's matrices see.
  const std::vector<Segment>& inner_tokens() const {
    return ulysses() ? narrow_tokens : wide_tokens;
  }
  // The same with the tokens of the other stream: those that a decoder's cross-attention looks at,
  // or that pass by an encoder. Null: there is no other.
  std::shared_ptr<const Site> beside;
};

std::int64_t count(const std::vector<Segment>& tokens);
// Whether they begin with the sample's first token, where a class token stands.
bool holds_first(const std::vector<Segment>& tokens);
// [tokens] int64 on the CPU.
at::Tensor positions_of(const std::vector<Segment>& tokens);

// The layout of the activation between layers: [tokens, samples, hidden].
Layout activation_layout(const Strategy& strategy, const Mesh& mesh, std::int64_t tokens,
                         std::int64_t micro_batch, bool causal);

// This rank's stage, and its place in it.
int local_rank(int device, const Mesh& mesh);
int device_at(int stage, int local, const Mesh& mesh);

// Asks `groups` for all groups of a layer, in a fixed order.
Site make_site(const Plan& plan, int layer, const Strategy& strategy, int device, bool causal,
               const Numerics& numerics, Groups& groups);

}  // namespace braid::parallel
