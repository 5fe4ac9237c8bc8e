// Decoder-only language models. Defaults for absent keys are those of Hugging Face's config
// classes.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/model/huggingface.h"

namespace braid::huggingface {

namespace {

Model decoder_model(const LayerShape& embedding, const LayerShape& block, int layers,
                    const LayerShape& head) {
  return assemble({{.type = {"embedding", embedding}},
                   {.type = {"decoder", block}, .count = layers},
                   {.type = {"head", head}}});
}

LayerShape embedding_of(const LayerShape& block, std::int64_t vocab) {
  return {.kind = LayerKind::embedding,
          .tokens = block.tokens,
          .hidden = block.hidden,
          .norm = block.norm,
          .norm_epsilon = block.norm_epsilon,
          .vocab = vocab,
          .init_std = block.init_std};
}

LayerShape head_of(const LayerShape& block, std::int64_t vocab, bool tied) {
  return {.kind = LayerKind::head,
          .tokens = block.tokens,
          .hidden = block.hidden,
          .norm = block.norm,
          .norm_epsilon = block.norm_epsilon,
          .vocab = vocab,
          .final_norm = true,
          .tied = tied,
          .init_std = block.init_std};
}

// The block that Llama and its successors share: rotary, grouped heads, RMSNorm and a gate.
LayerShape rotary_block(Config& config) {
  const std::int64_t hidden = config.size("hidden_size");
  const std::int64_t heads = config.size("num_attention_heads");
  const std::int64_t kv_heads = config.optional_size("num_key_value_heads").value_or(heads);
  if (heads % kv_heads != 0)
    config.fail("num_key_value_heads",
                fmt::format("{} key-value heads do not divide {} heads", kv_heads, heads),
                fmt::format("choose a divisor of {}", heads));
  const auto head_dim = config.optional_size("head_dim");
  const std::int64_t reach = config.size("max_position_embeddings");
  const Rotary rotary = config.rotary();
  return {.tokens = config.sequence(std::min(reach, kLongestUsual)),
          .hidden = hidden,
          .attention = AttentionKind::causal,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim ? *head_dim : config.head_dim(hidden, "num_attention_heads"),
          .rotary = true,
          .rotary_base = rotary.base,
          .rotary_scaling = rotary.scaling,
          .ffn = config.size("intermediate_size"),
          .activation = config.gated_activation("hidden_act"),
          .norm = NormKind::rms_norm,
          .norm_epsilon = config.positive_number("rms_norm_eps"),
          .init_std = config.positive_number("initializer_range")};
}

Model rotary_model(Config& config, const LayerShape& block) {
  const std::int64_t vocab = config.size("vocab_size");
  LayerShape embedding = embedding_of(block, vocab);
  embedding.padding_id = config.padding_id(vocab);
  return decoder_model(embedding, block, config.layers("num_hidden_layers"),
                       head_of(block, vocab, config.flag("tie_word_embeddings")));
}

// Whether each layer of a Qwen attends within the sliding window: by "layer_types", else those from
// "max_window_layers" on.
std::vector<bool> qwen_windows(Config& config, int layers, bool has_window) {
  std::vector<bool> windowed = config.windowed_layers(layers);
  if (windowed.empty()) {
    const std::int64_t full = config.count("max_window_layers");
    for (int i = 0; i < layers; ++i) windowed.push_back(has_window && i >= full);
  }
  if (!has_window && std::ranges::find(windowed, true) != windowed.end())
    config.fail("layer_types", "layers attend within a sliding window that is switched off",
                "set use_sliding_window and sliding_window, or name all layers full_attention");
  return windowed;
}

Model qwen_model(Config& config, const LayerShape& block) {
  Model model = rotary_model(config, block);
  const auto window = config.optional_size("sliding_window");
  const bool has_window = config.flag("use_sliding_window") && window;
  const std::vector<bool> windowed = qwen_windows(config, model.num_layers() - 2, has_window);
  const auto num_windowed = std::ranges::count(windowed, true);
  if (num_windowed == 0) return model;
  LayerType type{"windowed", block};
  type.shape.window = *window;
  if (num_windowed == model.num_layers() - 2) {
    model.types[1].shape = type.shape;
    return model;
  }
  model.types.push_back(type);
  for (std::size_t i = 0; i < windowed.size(); ++i)
    if (windowed[i]) model.layers[i + 1] = 3;
  return model;
}

// GPT-2, OPT and BLOOM: LayerNorm, a bias on every matrix, no gate.
LayerShape biased_block(Config& config, const std::string& hidden_key,
                        const std::string& heads_key) {
  const std::int64_t hidden = config.size(hidden_key);
  const std::int64_t heads = config.size(heads_key);
  return {.hidden = hidden,
          .attention = AttentionKind::causal,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = config.head_dim(hidden, heads_key),
          .ffn = 4 * hidden,
          .qkv_bias = true,
          .attention_out_bias = true,
          .ffn_bias = true};
}

Model llama(Config& config) {
  LayerShape block = rotary_block(config);
  block.qkv_bias = block.attention_out_bias = config.flag("attention_bias");
  block.ffn_bias = config.flag("mlp_bias");
  return rotary_model(config, block);
}

Model mistral(Config& config) {
  LayerShape block = rotary_block(config);
  block.window = config.optional_size("sliding_window").value_or(0);
  return rotary_model(config, block);
}

Model mixtral(Config& config) {
  LayerShape block = rotary_block(config);
  block.window = config.optional_size("sliding_window").value_or(0);
  block.experts = config.size("num_local_experts");
  block.experts_per_token = config.size("num_experts_per_tok");
  if (block.experts_per_token > block.experts)
    config.fail("num_experts_per_tok",
                fmt::format("{} experts a token are more than the {} there are",
                            block.experts_per_token, block.experts),
                fmt::format("choose at most {}", block.experts));
  return rotary_model(config, block);
}

Model qwen2(Config& config) {
  LayerShape block = rotary_block(config);
  block.qkv_bias = true;
  return qwen_model(config, block);
}

Model qwen3(Config& config) {
  LayerShape block = rotary_block(config);
  block.qkv_bias = block.attention_out_bias = config.flag("attention_bias");
  block.qk_norm = true;
  return qwen_model(config, block);
}

Model phi3(Config& config) {
  LayerShape block = rotary_block(config);
  block.window = config.optional_size("sliding_window").value_or(0);
  return rotary_model(config, block);
}

Model gpt2(Config& config) {
  LayerShape block = biased_block(config, "n_embd", "n_head");
  const std::int64_t positions = config.size("n_positions");
  block.tokens = config.sequence(std::min(positions, kLongestUsual));
  block.ffn = config.optional_size("n_inner").value_or(block.ffn);
  block.activation = config.plain_activation("activation_function");
  block.norm_epsilon = config.positive_number("layer_norm_epsilon");
  block.init_std = config.positive_number("initializer_range");
  const int layers = config.layers("n_layer");
  block.residual_init_scale = 1 / std::sqrt(2.0 * layers);
  const std::int64_t vocab = config.size("vocab_size");
  LayerShape embedding = embedding_of(block, vocab);
  embedding.positions = positions;
  return decoder_model(embedding, block, layers,
                       head_of(block, vocab, config.flag("tie_word_embeddings")));
}

Model opt(Config& config) {
  LayerShape block = biased_block(config, "hidden_size", "num_attention_heads");
  const std::int64_t projected = config.optional_size("word_embed_proj_dim").value_or(block.hidden);
  if (projected != block.hidden)
    config.fail("word_embed_proj_dim",
                fmt::format("embeddings of width {} need a projection to the hidden size {}",
                            projected, block.hidden),
                "plan an OPT whose two widths are equal (all but opt-350m)");
  const std::int64_t reach = config.size("max_position_embeddings");
  block.tokens = config.sequence(std::min(reach, kLongestUsual));
  block.ffn = config.size("ffn_dim");
  block.activation = config.plain_activation("activation_function");
  block.norm_epsilon = 1e-5;  // not configurable there
  block.init_std = config.positive_number("init_std");
  const bool bias = config.flag("enable_bias");
  block.qkv_bias = block.attention_out_bias = block.ffn_bias = bias;
  const std::int64_t vocab = config.size("vocab_size");
  LayerShape embedding = embedding_of(block, vocab);
  embedding.position_offset = 2;
  embedding.positions = reach + embedding.position_offset;
  embedding.padding_id = config.padding_id(vocab);
  LayerShape head = head_of(block, vocab, config.flag("tie_word_embeddings"));
  block.post_norm = !config.flag("do_layer_norm_before");
  head.final_norm = !block.post_norm && !config.flag("_remove_final_layer_norm");
  return decoder_model(embedding, block, config.layers("num_hidden_layers"), head);
}

Model bloom(Config& config) {
  LayerShape block = biased_block(config, "hidden_size", "n_head");
  block.tokens = config.sequence(config.size("seq_length"));  // ALiBi sets no maximum
  block.activation = Activation::gelu_tanh;
  block.norm_epsilon = config.positive_number("layer_norm_epsilon");
  block.init_std = config.positive_number("initializer_range");
  block.alibi = true;
  const std::int64_t vocab = config.size("vocab_size");
  LayerShape embedding = embedding_of(block, vocab);
  embedding.embedding_norm = true;
  return decoder_model(embedding, block, config.layers("n_layer"),
                       head_of(block, vocab, config.flag("tie_word_embeddings")));
}

constexpr std::array kFamilies = {
    Family{"llama", llama}, Family{"mistral", mistral}, Family{"mixtral", mixtral},
    Family{"qwen2", qwen2}, Family{"qwen3", qwen3},     Family{"gpt2", gpt2},
    Family{"opt", opt},     Family{"phi3", phi3},       Family{"bloom", bloom},
};

}  // namespace

std::span<const Family> decoders() { return kFamilies; }

}  // namespace braid::huggingface
