#include "runtime/checkpoint/huggingface_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/model/image.h"
#include "planner/model/layer_name.h"

namespace braid::checkpoint {

namespace {

// A module of Braid's and the one that holds its weight and bias in checkpoints. Every '#' is a
// number, the same ones in the same order on both sides.
struct Row {
  const char* ours;
  const char* theirs;
  bool transposed = false;  // its matrix; a bias has one dim
  int part = 0, parts = 1;
  bool by_head = false;
  bool folded = false;
  bool bare = false;  // its name ends without "weight"
};

constexpr Row kGpt2[] = {
    {"embedding.table", "transformer.wte"},
    {"embedding.positions", "transformer.wpe"},
    {"blocks.#.attention.norm", "transformer.h.#.ln_1"},
    // Conv1D: [in, out], with q, k and v beside each other.
    {"blocks.#.attention.q", "transformer.h.#.attn.c_attn", true, 0, 3},
    {"blocks.#.attention.k", "transformer.h.#.attn.c_attn", true, 1, 3},
    {"blocks.#.attention.v", "transformer.h.#.attn.c_attn", true, 2, 3},
    {"blocks.#.attention.out", "transformer.h.#.attn.c_proj", true},
    {"blocks.#.ffn.norm", "transformer.h.#.ln_2"},
    {"blocks.#.ffn.up", "transformer.h.#.mlp.c_fc", true},
    {"blocks.#.ffn.down", "transformer.h.#.mlp.c_proj", true},
    {"head.norm", "transformer.ln_f"},
    {"head.matrix", "lm_head"},
};

constexpr Row kOpt[] = {
    {"embedding.table", "model.decoder.embed_tokens"},
    {"embedding.positions", "model.decoder.embed_positions"},
    {"blocks.#.attention.norm", "model.decoder.layers.#.self_attn_layer_norm"},
    {"blocks.#.attention.q", "model.decoder.layers.#.self_attn.q_proj"},
    {"blocks.#.attention.k", "model.decoder.layers.#.self_attn.k_proj"},
    {"blocks.#.attention.v", "model.decoder.layers.#.self_attn.v_proj"},
    {"blocks.#.attention.out", "model.decoder.layers.#.self_attn.out_proj"},
    {"blocks.#.ffn.norm", "model.decoder.layers.#.final_layer_norm"},
    {"blocks.#.ffn.up", "model.decoder.layers.#.fc1"},
    {"blocks.#.ffn.down", "model.decoder.layers.#.fc2"},
    {"head.norm", "model.decoder.final_layer_norm"},
    {"head.matrix", "lm_head"},
};

// What Mistral, Qwen and Mixtral add to Llama has names of its own, so one table serves them all.
constexpr Row kLlama[] = {
    {"embedding.table", "model.embed_tokens"},
    {"blocks.#.attention.norm", "model.layers.#.input_layernorm"},
    {"blocks.#.attention.q", "model.layers.#.self_attn.q_proj"},
    {"blocks.#.attention.k", "model.layers.#.self_attn.k_proj"},
    {"blocks.#.attention.v", "model.layers.#.self_attn.v_proj"},
    {"blocks.#.attention.q_norm", "model.layers.#.self_attn.q_norm"},
    {"blocks.#.attention.k_norm", "model.layers.#.self_attn.k_norm"},
    {"blocks.#.attention.out", "model.layers.#.self_attn.o_proj"},
    {"blocks.#.ffn.norm", "model.layers.#.post_attention_layernorm"},
    {"blocks.#.ffn.gate", "model.layers.#.mlp.gate_proj"},
    {"blocks.#.ffn.up", "model.layers.#.mlp.up_proj"},
    {"blocks.#.ffn.down", "model.layers.#.mlp.down_proj"},
    {"blocks.#.ffn.router", "model.layers.#.block_sparse_moe.gate"},
    {"blocks.#.ffn.experts.#.gate", "model.layers.#.block_sparse_moe.experts.#.w1"},
    {"blocks.#.ffn.experts.#.up", "model.layers.#.block_sparse_moe.experts.#.w3"},
    {"blocks.#.ffn.experts.#.down", "model.layers.#.block_sparse_moe.experts.#.w2"},
    {"head.norm", "model.norm"},
    {"head.matrix", "lm_head"},
};

constexpr Row kPhi3[] = {
    {"embedding.table", "model.embed_tokens"},
    {"blocks.#.attention.norm", "model.layers.#.input_layernorm"},
    {"blocks.#.attention.q", "model.layers.#.self_attn.qkv_proj", false, 0, 3},
    {"blocks.#.attention.k", "model.layers.#.self_attn.qkv_proj", false, 1, 3},
    {"blocks.#.attention.v", "model.layers.#.self_attn.qkv_proj", false, 2, 3},
    {"blocks.#.attention.out", "model.layers.#.self_attn.o_proj"},
    {"blocks.#.ffn.norm", "model.layers.#.post_attention_layernorm"},
    {"blocks.#.ffn.gate", "model.layers.#.mlp.gate_up_proj", false, 0, 2},
    {"blocks.#.ffn.up", "model.layers.#.mlp.gate_up_proj", false, 1, 2},
    {"blocks.#.ffn.down", "model.layers.#.mlp.down_proj"},
    {"head.norm", "model.norm"},
    {"head.matrix", "lm_head"},
};

constexpr Row kBloom[] = {
    {"embedding.table", "transformer.word_embeddings"},
    {"embedding.norm", "transformer.word_embeddings_layernorm"},
    {"blocks.#.attention.norm", "transformer.h.#.input_layernorm"},
    // q, k and v of the first head, then of the second, …
    {.ours = "blocks.#.attention.q",
     .theirs = "transformer.h.#.self_attention.query_key_value",
     .part = 0,
     .parts = 3,
     .by_head = true},
    {.ours = "blocks.#.attention.k",
     .theirs = "transformer.h.#.self_attention.query_key_value",
     .part = 1,
     .parts = 3,
     .by_head = true},
    {.ours = "blocks.#.attention.v",
     .theirs = "transformer.h.#.self_attention.query_key_value",
     .part = 2,
     .parts = 3,
     .by_head = true},
    {"blocks.#.attention.out", "transformer.h.#.self_attention.dense"},
    {"blocks.#.ffn.norm", "transformer.h.#.post_attention_layernorm"},
    {"blocks.#.ffn.up", "transformer.h.#.mlp.dense_h_to_4h"},
    {"blocks.#.ffn.down", "transformer.h.#.mlp.dense_4h_to_h"},
    {"head.norm", "transformer.ln_f"},
    {"head.matrix", "lm_head"},
};

constexpr Row kBert[] = {
    {"embedding.table", "bert.embeddings.word_embeddings"},
    {"embedding.positions", "bert.embeddings.position_embeddings"},
    {"embedding.token_types", "bert.embeddings.token_type_embeddings"},
    {"embedding.norm", "bert.embeddings.LayerNorm"},
    {"blocks.#.attention.q", "bert.encoder.layer.#.attention.self.query"},
    {"blocks.#.attention.k", "bert.encoder.layer.#.attention.self.key"},
    {"blocks.#.attention.v", "bert.encoder.layer.#.attention.self.value"},
    {"blocks.#.attention.out", "bert.encoder.layer.#.attention.output.dense"},
    {"blocks.#.attention.norm", "bert.encoder.layer.#.attention.output.LayerNorm"},
    {"blocks.#.ffn.up", "bert.encoder.layer.#.intermediate.dense"},
    {"blocks.#.ffn.down", "bert.encoder.layer.#.output.dense"},
    {"blocks.#.ffn.norm", "bert.encoder.layer.#.output.LayerNorm"},
    {"head.dense", "cls.predictions.transform.dense"},
    {"head.norm", "cls.predictions.transform.LayerNorm"},
    {"head.matrix", "cls.predictions.decoder"},
    {"head", "cls.predictions"},  // its bias
};

constexpr Row kVit[] = {
    {.ours = "embedding.projection",
     .theirs = "vit.embeddings.patch_embeddings.projection",
     .folded = true},
    {.ours = "embedding.class_token",
     .theirs = "vit.embeddings.cls_token",
     .folded = true,
     .bare = true},
    {.ours = "embedding.positions",
     .theirs = "vit.embeddings.position_embeddings",
     .folded = true,
     .bare = true},
    {"blocks.#.attention.norm", "vit.encoder.layer.#.layernorm_before"},
    {"blocks.#.attention.q", "vit.encoder.layer.#.attention.attention.query"},
    {"blocks.#.attention.k", "vit.encoder.layer.#.attention.attention.key"},
    {"blocks.#.attention.v", "vit.encoder.layer.#.attention.attention.value"},
    {"blocks.#.attention.out", "vit.encoder.layer.#.attention.output.dense"},
    {"blocks.#.ffn.norm", "vit.encoder.layer.#.layernorm_after"},
    {"blocks.#.ffn.up", "vit.encoder.layer.#.intermediate.dense"},
    {"blocks.#.ffn.down", "vit.encoder.layer.#.output.dense"},
    {"head.norm", "vit.layernorm"},
    {"head.matrix", "classifier"},
    {"head", "classifier"},  // its bias
};

constexpr Row kSwin[] = {
    {.ours = "embedding.projection",
     .theirs = "swin.embeddings.patch_embeddings.projection",
     .folded = true},
    {"embedding.norm", "swin.embeddings.norm"},
    {.ours = "embedding.positions",
     .theirs = "swin.embeddings.position_embeddings",
     .folded = true,
     .bare = true},
    {"stages.#.#.attention.norm", "swin.encoder.layers.#.blocks.#.layernorm_before"},
    {"stages.#.#.attention.q", "swin.encoder.layers.#.blocks.#.attention.self.query"},
    {"stages.#.#.attention.k", "swin.encoder.layers.#.blocks.#.attention.self.key"},
    {"stages.#.#.attention.v", "swin.encoder.layers.#.blocks.#.attention.self.value"},
    {.ours = "stages.#.#.attention.relative_bias",
     .theirs = "swin.encoder.layers.#.blocks.#.attention.self.relative_position_bias_table",
     .bare = true},
    {"stages.#.#.attention.out", "swin.encoder.layers.#.blocks.#.attention.output.dense"},
    {"stages.#.#.ffn.norm", "swin.encoder.layers.#.blocks.#.layernorm_after"},
    {"stages.#.#.ffn.up", "swin.encoder.layers.#.blocks.#.intermediate.dense"},
    {"stages.#.#.ffn.down", "swin.encoder.layers.#.blocks.#.output.dense"},
    {"stages.#.merge.norm", "swin.encoder.layers.#.downsample.norm"},
    {"stages.#.merge.reduction", "swin.encoder.layers.#.downsample.reduction"},
    {"head.norm", "swin.layernorm"},
    {"head.matrix", "classifier"},
    {"head", "classifier"},  // its bias
};

constexpr Row kT5[] = {
    {"embedding.table", "shared"},
    {"embedding.encoder.relative_bias",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"},
    {"embedding.decoder.relative_bias",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"},
    {"encoder.#.attention.norm", "encoder.block.#.layer.0.layer_norm"},
    {"encoder.#.attention.q", "encoder.block.#.layer.0.SelfAttention.q"},
    {"encoder.#.attention.k", "encoder.block.#.layer.0.SelfAttention.k"},
    {"encoder.#.attention.v", "encoder.block.#.layer.0.SelfAttention.v"},
    {"encoder.#.attention.out", "encoder.block.#.layer.0.SelfAttention.o"},
    {"encoder.#.ffn.norm", "encoder.block.#.layer.1.layer_norm"},
    {"encoder.#.ffn.plain", "encoder.block.#.layer.1.DenseReluDense.wi"},
    {"encoder.#.ffn.gate", "encoder.block.#.layer.1.DenseReluDense.wi_0"},
    {"encoder.#.ffn.up", "encoder.block.#.layer.1.DenseReluDense.wi_1"},
    {"encoder.#.ffn.down", "encoder.block.#.layer.1.DenseReluDense.wo"},
    {"encoder.#.final_norm", "encoder.final_layer_norm"},
    {"decoder.#.attention.norm", "decoder.block.#.layer.0.layer_norm"},
    {"decoder.#.attention.q", "decoder.block.#.layer.0.SelfAttention.q"},
    {"decoder.#.attention.k", "decoder.block.#.layer.0.SelfAttention.k"},
    {"decoder.#.attention.v", "decoder.block.#.layer.0.SelfAttention.v"},
    {"decoder.#.attention.out", "decoder.block.#.layer.0.SelfAttention.o"},
    {"decoder.#.cross.norm", "decoder.block.#.layer.1.layer_norm"},
    {"decoder.#.cross.q", "decoder.block.#.layer.1.EncDecAttention.q"},
    {"decoder.#.cross.k", "decoder.block.#.layer.1.EncDecAttention.k"},
    {"decoder.#.cross.v", "decoder.block.#.layer.1.EncDecAttention.v"},
    {"decoder.#.cross.out", "decoder.block.#.layer.1.EncDecAttention.o"},
    {"decoder.#.ffn.norm", "decoder.block.#.layer.2.layer_norm"},
    {"decoder.#.ffn.plain", "decoder.block.#.layer.2.DenseReluDense.wi"},
    {"decoder.#.ffn.gate", "decoder.block.#.layer.2.DenseReluDense.wi_0"},
    {"decoder.#.ffn.up", "decoder.block.#.layer.2.DenseReluDense.wi_1"},
    {"decoder.#.ffn.down", "decoder.block.#.layer.2.DenseReluDense.wo"},
    {"head.norm", "decoder.final_layer_norm"},
    {"head.matrix", "lm_head"},
};

struct Family {
  const char* name;
  std::span<const Row> rows;
};
constexpr Family kFamilies[] = {
    {"bert", kBert},     {"bloom", kBloom},   {"gpt2", kGpt2},   {"opt", kOpt},
    {"llama", kLlama},   {"mistral", kLlama}, {"qwen2", kLlama}, {"qwen3", kLlama},
    {"mixtral", kLlama}, {"phi3", kPhi3},     {"swin", kSwin},   {"t5", kT5},
    {"vit", kVit},
};

std::span<const Row> rows_of(const Model& model) {
  for (const Family& family : kFamilies)
    if (model.family == family.name) return family.rows;
  std::vector<std::string> known;
  for (const Family& family : kFamilies) known.emplace_back(family.name);
  throw Error(
      {.what = fmt::format("no checkpoint's names are known for '{}'", model.name),
       .where = fmt::format("model family '{}'", model.family),
       .fix = fmt::format("start from random weights, or load one of {}", join(known, ", "))});
}

// In a model that merges patches: with the stage's number, and the block's in it.
std::string name_in_stage(const Model& model, int layer, const std::string& name) {
  int stage = 0, first = 1;
  for (int i = 1; i < layer; ++i)
    if (model.type_of(i).shape.kind == LayerKind::merge) {
      ++stage;
      first = i + 1;
    }
  if (model.type_of(layer).shape.kind == LayerKind::merge)
    return fmt::format("stages.{}.merge.{}", stage, name);
  return fmt::format("stages.{}.{}.{}", stage, layer - first, name);
}

// The parameter's name with its layer's: of an encoder-decoder, with the stack's and the number in
// it. A matrix that stands alone ahead of the activation has another name there than beside a gate.
std::string name_in_model(const Model& model, int layer, const std::string& name) {
  const LayerShape& shape = model.type_of(layer).shape;
  // BERT: a head with a matrix of its own has its bias beside it.
  if (shape.head_dense > 0 && !shape.tied && name == "bias") return "head.matrix.bias";
  if (shape.kind == LayerKind::merge || shape.attention == AttentionKind::window)
    return name_in_stage(model, layer, name);
  if (shape.kind != LayerKind::block || shape.cross_tokens + shape.carried_tokens == 0)
    return fmt::format("{}.{}", layer_name(model, layer), name);
  int first = 1;
  while (shape.cross_tokens > 0 && model.type_of(first).shape.cross_tokens == 0) ++first;
  const bool plain = name.starts_with("ffn.up") && !is_gated(shape.activation);
  return fmt::format("{}.{}.{}", shape.cross_tokens > 0 ? "decoder" : "encoder", layer - first,
                     plain ? "ffn.plain" + name.substr(6) : name);
}

// "blocks.3.ffn.up" → "blocks.#.ffn.up" and {"3"}
std::vector<std::string> take_numbers(std::string& name) {
  std::vector<std::string> numbers;
  std::string pattern;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && pattern.ends_with('.')) {
      numbers.emplace_back();
      pattern += '#';
    }
    if (digit && pattern.ends_with('#')) {
      numbers.back() += c;
    } else {
      pattern += c;
    }
  }
  name = pattern;
  return numbers;
}

std::string with_numbers(std::string_view pattern, const std::vector<std::string>& numbers) {
  std::string name;
  auto next = numbers.begin();
  for (const char c : pattern) {
    if (c == '#') {
      name += *next++;
    } else {
      name += c;
    }
  }
  return name;
}

// Where each part of a tensor begins, and where the last one ends, told from the rows of one. Three
// parts are q, k and v, and keys and values may have fewer heads; others are equal.
std::vector<std::int64_t> rows_of_parts(const Source& source, const LayerShape& layer,
                                        std::int64_t rows) {
  const std::int64_t group = source.parts == 3 ? layer.heads / layer.kv_heads : 1;
  const std::int64_t usual = source.part == 0 ? rows / group : rows;
  std::vector<std::int64_t> begins = {0};
  for (int part = 0; part < source.parts; ++part)
    begins.push_back(begins.back() + (part == 0 ? group * usual : usual));
  return begins;
}

}  // namespace

Source source_of(const Model& model, int layer, const std::string& name) {
  std::string module = name_in_model(model, layer, name);
  std::string suffix = ".weight";
  for (const char* kind : {".weight", ".bias"})
    if (module.ends_with(kind)) {
      suffix = kind;
      module.resize(module.size() - suffix.size());
      break;
    }
  const std::vector<std::string> numbers = take_numbers(module);
  for (const Row& row : rows_of(model))
    if (module == row.ours)
      return {.tensor = with_numbers(row.theirs, numbers) + (row.bare ? "" : suffix),
              .transposed = row.transposed && suffix == ".weight",
              .part = row.part,
              .parts = row.parts,
              .by_head = row.by_head,
              .folded = row.folded};
  throw Error({.what = fmt::format("checkpoints of '{}' have no name for {} of {}", model.family,
                                   name, layer_name(model, layer)),
               .where = fmt::format("model '{}'", model.name),
               .fix = "start from random weights, or name the family that the model belongs to"});
}

std::vector<std::int64_t> stored_shape(const Source& source, const LayerShape& layer,
                                       std::vector<std::int64_t> shape) {
  shape[0] = rows_of_parts(source, layer, shape[0]).back();
  if (source.transposed) std::ranges::reverse(shape);
  return shape;
}

std::vector<std::int64_t> published_shape(const Source& source, const Model& model, int layer,
                                          const parallel::ParameterSpec& spec) {
  std::vector<std::int64_t> shape = stored_shape(source, model.type_of(layer).shape, spec.shape);
  if (!source.folded || shape.size() != 2) return shape;
  // Of a folded matrix: the patches' projection is a convolution, tables have a batch of one.
  if (spec.name != "projection.weight") return {1, shape[0], shape[1]};
  const ImageShape image = image_shape_of(model);
  const std::int64_t patch = image.side / patches_across(model);
  return {shape[0], image.channels, patch, patch};
}

std::int64_t first_row(const Source& source, const LayerShape& layer, std::int64_t rows) {
  return rows_of_parts(source, layer, rows)[static_cast<std::size_t>(source.part)];
}

at::Tensor part_of(const at::Tensor& stored, const Source& source, const LayerShape& layer,
                   const std::vector<std::int64_t>& shape) {
  if (source.by_head)
    return stored.unflatten(0, {layer.heads, source.parts, -1}).select(1, source.part);
  const at::Tensor rows = source.transposed ? stored.t() : stored;
  return rows.narrow(0, first_row(source, layer, shape[0]), shape[0]);
}

std::vector<std::string> names_in_files(const std::string& tensor) {
  // Files of a bare model leave out the first part of the name.
  std::vector<std::string> names = {tensor, tensor.substr(tensor.find('.') + 1)};
  // BERT's first checkpoints have TensorFlow's names.
  for (const auto& [now, before] : {std::pair("LayerNorm.weight", "LayerNorm.gamma"),
                                    std::pair("LayerNorm.bias", "LayerNorm.beta")})
    for (std::size_t i = 0; i < 2; ++i)
      if (names[i].ends_with(now))
        names.push_back(names[i].substr(0, names[i].size() - std::strlen(now)) + before);
  return names;
}

std::optional<std::string> tied_to(const Model& model, const std::string& tensor) {
  if (model.family == "t5")
    for (const char* copy : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"})
      if (tensor == copy) return "shared.weight";
  if (!model.type_of(model.num_layers() - 1).shape.tied) return std::nullopt;
  for (const char* copy : {"lm_head.weight", "cls.predictions.decoder.weight"})
    if (tensor == copy) return source_of(model, 0, "table").tensor;
  if (tensor == "cls.predictions.decoder.bias") return "cls.predictions.bias";
  return std::nullopt;
}

bool is_dispensable(const std::string& tensor) {
  // Buffers that follow from the config, and heads of other objectives.
  static constexpr const char* kEndings[] = {
      ".rotary_emb.inv_freq", ".attn.bias",         ".attn.masked_bias",       ".position_ids",
      ".pooler.dense.weight", ".pooler.dense.bias", ".relative_position_index"};
  static constexpr const char* kBeginnings[] = {"pooler.", "cls.seq_relationship.", "optimizer."};
  const auto ends = [&](const char* ending) { return tensor.ends_with(ending); };
  const auto begins = [&](const char* beginning) { return tensor.starts_with(beginning); };
  return std::ranges::any_of(kEndings, ends) || std::ranges::any_of(kBeginnings, begins);
}

}  // namespace braid::checkpoint
