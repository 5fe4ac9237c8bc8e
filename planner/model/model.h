#pragma once
// What is trained: a sequence of layers, each of one of a few types.

#include <filesystem>
#include <string>
#include <vector>

#include "planner/core/json_fwd.h"
#include "planner/model/layer.h"

namespace braid {

struct LayerType {
  std::string name;  // "decoder", "encoder", "embedding", "head"
  LayerShape shape;
};

struct Model {
  std::string name;
  std::string family;  // "llama", "t5", … or "braid"
  std::vector<LayerType> types;
  std::vector<int> layers;    // a type's index for each layer; the first is the embedding, the last
                              // the head, blocks (and merges) between
  std::int64_t sequence = 0;  // tokens of one sample

  int num_layers() const { return static_cast<int>(layers.size()); }
  const LayerType& type_of(int layer) const {
    return types[static_cast<std::size_t>(layers[static_cast<std::size_t>(layer)])];
  }
};

std::int64_t parameters(const Model& model);
// FLOPs of one sample, forward and backward (backward counts twice the forward), no recomputation.
Flops training_flops(const Model& model);

// The same model at another sequence length. Throws Error where its positions do not reach that far
// or its token count is fixed (images).
Model with_sequence(const Model& model, std::int64_t sequence);

// Reads a Hugging Face config.json or a Braid model, telling them apart by "format".
// `sequence` 0 takes the model's own (its training length, at most its maximum positions).
Model read_model(const std::filesystem::path& file, std::int64_t sequence = 0);
Model model_from_json(const Json& json, const std::string& source, std::int64_t sequence = 0);
Model model_from_huggingface(const Json& json, const std::string& source, std::int64_t sequence);
Model model_from_braid(const Json& json, const std::string& source, std::int64_t sequence);
// What a Hugging Face config says that its model does not follow, a line each: keys that are not
// known, dropout, another class than the one trained. Empty for a Braid model.
std::vector<std::string> config_warnings(const Json& json, const std::string& source);
Json to_json(const Model& model);  // as a Braid model

// Throws Error unless embedding, blocks and head stand in order and every shape is sound.
void verify(const Model& model, const std::string& source);

}  // namespace braid
