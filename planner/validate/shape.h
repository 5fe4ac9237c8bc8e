#pragma once
// What a run trained, as a list of items that a pipeline cuts: embedding, blocks, head.

#include <vector>

#include "planner/validate/run.h"

namespace braid {

struct Block {
  double hidden = 0;
  double ffn = 0;
  double heads = 0;
  double kv_heads = 0;
  double seq = 0;
  double windows = 1;  // sequences that one sample has here
  bool gated = false;  // three matrices in the feed-forward layer
  double share = 1;    // of a whole block, where a pipeline may cut inside one

  double parameters() const;
  bool operator==(const Block&) const = default;
};

enum class ItemKind { nothing, embedding, block, head };

struct Item {
  ItemKind kind = ItemKind::nothing;
  Block block{};
};

struct ModelShape {
  std::vector<Item> items{};
  double vocabulary = 0;
  double hidden = 0;  // of the embedding
  double seq = 0;
  bool tied = true;
  bool splits_tables = true;  // over the tensor ranks

  double parameters() const;
  int num_blocks() const;
};

// From the run's own figures, or from its model's name. Throws where neither says it.
ModelShape shape_of(const MeasuredRun& run);

// Devices and batch, where a source gives them once for a model.
void fill_in_size(MeasuredRun& run);

}  // namespace braid
