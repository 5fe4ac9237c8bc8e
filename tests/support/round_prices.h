#pragma once
// Profiles of round numbers, under which a layer's price is a count of what it does.

#include "planner/profile/profile.h"

namespace braid {

struct Price {
  double call = 0;  // seconds of every collective
  double byte = 0;  // and of each of its bytes
};

// One type of block, of round sizes.
inline Model round_model(std::int64_t tokens, std::int64_t kv_heads) {
  LayerShape block;
  block.tokens = tokens;
  block.hidden = 16;
  block.attention = AttentionKind::causal;
  block.heads = 8;
  block.kv_heads = kv_heads;
  block.head_dim = 2;
  block.ffn = 64;
  const LayerShape embedding{
      .kind = LayerKind::embedding, .tokens = tokens, .hidden = 16, .vocab = 100};
  LayerShape head = embedding;
  head.kind = LayerKind::head;
  return {.name = "round",
          .family = "braid",
          .types = {{"embedding", embedding}, {"block", block}, {"head", head}},
          .layers = {0, 1, 1, 2},
          .sequence = tokens};
}

// Layers that compute nothing, so that nothing hides; collectives of `op` at a price, all others
// free.
inline Profile priced_profile(const Model& model, Collective op, Price price) {
  Profile profile;
  profile.name = "round";
  for (const LayerType& type : model.types) {
    ComputeSample nothing;
    nothing.sequence = type.shape.tokens;
    nothing.backward_input = nothing.backward_weight = Seconds(0);
    nothing.selective = nothing.full = Seconds(0);
    MeasuredLayer layer;
    layer.type = type.name;
    layer.compute = {nothing};
    profile.layers.push_back(layer);
  }
  constexpr int kMostRanks = 16;
  for (const Collective each :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::all_to_all, Collective::point_to_point})
    for (int ranks = 2; ranks <= kMostRanks; ++ranks)
      for (const std::int64_t bytes : {0, 1}) {
        const double seconds = price.call + price.byte * static_cast<double>(bytes);
        profile.collectives.push_back(
            {each, ranks, 1, Bytes(bytes), Seconds(each == op ? seconds : 0)});
      }
  return profile;
}

}  // namespace braid
