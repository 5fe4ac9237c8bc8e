#pragma once
// A rank's layers of a plan's model. Every architecture is made of the same blocks; what they do
// follows from the shapes the planner read.

#include <memory>
#include <optional>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/models/embedding.h"
#include "runtime/models/head.h"
#include "runtime/models/patch_embedding.h"
#include "runtime/models/shared_bias.h"
#include "runtime/parallel/tied_table.h"

namespace braid::models {

struct RankModel {
  std::vector<std::unique_ptr<parallel::Layer>> layers;  // in the order of the stage's chunks
  std::vector<int> indices;                              // the model's numbers of them
  Embedding* embedding = nullptr;                        // where this rank has it
  PatchEmbedding* patches = nullptr;                     // in its place, of an image model
  Head* head = nullptr;
  std::unique_ptr<parallel::TiedTable> tied;  // where embedding and head are ranks apart
  std::unique_ptr<SharedBias> bias;           // where blocks share tables of the embedding

  std::vector<parallel::Layer*> all() const;
  parallel::FlatBuffer::Usage bytes() const;
  // Copies of weights to where they are used, after those have changed; and their gradients back,
  // ahead of reducing them. Collective over all ranks.
  void send_copies();
  void send_gradients_of_copies();
};

// Throws Error unless the runtime has all operators of the model.
void require_supported(const Model& model);
// Whether attention looks back only.
bool is_causal(const Model& model);

// Collective over the ranks of a stage. Weights are zero until initialised or loaded.
RankModel build(const Plan& plan, int device, const parallel::Numerics& numerics,
                parallel::Groups& groups, const ModelOptions& options);

}  // namespace braid::models
