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

// Where the config classes of the rotary families differ.
struct RotaryDefaults {
  double norm_epsilon = 1e-6;
  double rotary_base = 10'000;
  std::int64_t head_dim = 0;  // 0: hidden size / heads
};

// The block that Llama and its successors share: rotary, grouped heads, RMSNorm and a gate.
LayerShape rotary_block(Config& config, const RotaryDefaults& usual = {}) {
  const std::int64_t hidden = config.size("hidden_size");
  const std::int64_t heads = config.size("num_attention_heads");
  const std::int64_t kv_heads = config.size_or("num_key_value_heads", heads);
  if (heads % kv_heads != 0)
    config.fail("num_key_value_heads",
                fmt::format("{} key-value heads do not divide {} heads", kv_heads, heads),
                fmt::format("choose a divisor of {}", heads));
  std::int64_t head_dim = config.size_or("head_dim", usual.head_dim);
  if (head_dim == 0) head_dim = config.head_dim(hidden, "num_attention_heads");
  const std::int64_t reach = config.size("max_position_embeddings");
  const Rotary rotary = config.rotary(usual.rotary_base);
  return {.tokens = config.sequence(std::min(reach, kLongestUsual)),
          .hidden = hidden,
          .attention = AttentionKind::causal,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .rotary = true,
          .rotary_base = rotary.base,
          .rotary_scaling = rotary.scaling,
          .ffn = config.size("intermediate_size"),
          .activation = config.gated_activation("hidden_act", "silu"),
          .norm = NormKind::rms_norm,
          .norm_epsilon = config.positive_or("rms_norm_eps", usual.norm_epsilon),
          .init_std = config.positive_or("initializer_range", 0.02)};
}

Model rotary_model(Config& config, const LayerShape& block) {
  const std::int64_t vocab = config.size("vocab_size");
  return decoder_model(embedding_of(block, vocab), block, config.layers("num_hidden_layers"),
                       head_of(block, vocab, config.flag_or("tie_word_embeddings", false)));
}

// Qwen: where the window is switched on, it holds for the layers from max_window_layers on.
Model with_late_window(Config& config, const LayerShape& block) {
  Model model = rotary_model(config, block);
  if (!config.flag_or("use_sliding_window", false)) return model;
  LayerType windowed{"windowed", block};
  windowed.shape.window = config.size_or("sliding_window", 4096);
  const std::int64_t blocks = model.num_layers() - 2;
  const std::int64_t full = config.count_or("max_window_layers", 28);
  if (full >= blocks) return model;
  if (full == 0) {
    model.types[1].shape = windowed.shape;
    return model;
  }
  model.types.push_back(windowed);
  std::fill(model.layers.begin() + 1 + full, model.layers.end() - 1, 3);
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
          .ffn_bias = true,
          .norm_epsilon = config.positive_or("layer_norm_epsilon", 1e-5),
          .init_std = config.positive_or("initializer_range", 0.02)};
}

// Scores are divided by the square root of the head's width, whatever the layer.
void require_usual_scores(Config& config) {
  constexpr const char* kFix = "plan a GPT-2 that scales its scores in the usual way";
  if (!config.flag_or("scale_attn_weights", true))
    config.fail("scale_attn_weights", "attention without scaled scores is not known", kFix);
  if (config.flag_or("scale_attn_by_inverse_layer_idx", false))
    config.fail("scale_attn_by_inverse_layer_idx", "scores scaled by layer are not known", kFix);
}

Model llama(Config& config) {
  LayerShape block = rotary_block(config);
  block.qkv_bias = block.attention_out_bias = config.flag_or("attention_bias", false);
  block.ffn_bias = config.flag_or("mlp_bias", false);
  return rotary_model(config, block);
}

Model mistral(Config& config) {
  LayerShape block = rotary_block(config);
  // Absent is 4096, null is no window.
  block.window = config.size_or("sliding_window", config.has("sliding_window") ? 0 : 4096);
  return rotary_model(config, block);
}

Model mixtral(Config& config) {
  LayerShape block = rotary_block(config, {.norm_epsilon = 1e-5, .rotary_base = 1e6});
  block.window = config.size_or("sliding_window", 0);
  block.experts = config.size_or("num_local_experts", 8);
  block.experts_per_token = config.size_or("num_experts_per_tok", 2);
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
  return with_late_window(config, block);
}

Model qwen3(Config& config) {
  LayerShape block = rotary_block(config, {.head_dim = 128});
  block.qkv_bias = block.attention_out_bias = config.flag_or("attention_bias", false);
  block.qk_norm = true;
  return with_late_window(config, block);
}

Model phi3(Config& config) {
  LayerShape block = rotary_block(config, {.norm_epsilon = 1e-5});
  block.window = config.size_or("sliding_window", 0);
  return rotary_model(config, block);
}

Model gpt2(Config& config) {
  require_usual_scores(config);
  LayerShape block = biased_block(config, "n_embd", "n_head");
  const std::int64_t positions = config.size("n_positions");
  block.tokens = config.sequence(std::min(positions, kLongestUsual));
  block.ffn = config.size_or("n_inner", block.ffn);
  block.activation = config.plain_activation("activation_function", "gelu_new");
  const int layers = config.layers("n_layer");
  block.residual_init_scale = 1 / std::sqrt(2.0 * layers);
  const std::int64_t vocab = config.size("vocab_size");
  LayerShape embedding = embedding_of(block, vocab);
  embedding.positions = positions;
  return decoder_model(embedding, block, layers,
                       head_of(block, vocab, config.flag_or("tie_word_embeddings", true)));
}

Model opt(Config& config) {
  LayerShape block = biased_block(config, "hidden_size", "num_attention_heads");
  const std::int64_t projected = config.size_or("word_embed_proj_dim", block.hidden);
  if (projected != block.hidden)
    config.fail("word_embed_proj_dim",
                fmt::format("embeddings of width {} need a projection to the hidden size {}",
                            projected, block.hidden),
                "plan an OPT whose two widths are equal (all but opt-350m)");
  const std::int64_t reach = config.size("max_position_embeddings");
  block.tokens = config.sequence(std::min(reach, kLongestUsual));
  block.ffn = config.size("ffn_dim");
  block.activation = config.plain_activation("activation_function", "relu");
  block.norm_epsilon = 1e-5;  // not configurable there
  block.init_std = config.positive_or("init_std", 0.02);
  const bool bias = config.flag_or("enable_bias", true);
  block.qkv_bias = block.attention_out_bias = block.ffn_bias = bias;
  const std::int64_t vocab = config.size("vocab_size");
  LayerShape embedding = embedding_of(block, vocab);
  embedding.position_offset = 2;
  embedding.positions = reach + embedding.position_offset;
  LayerShape head = head_of(block, vocab, config.flag_or("tie_word_embeddings", true));
  block.post_norm = !config.flag_or("do_layer_norm_before", true);
  head.final_norm = !block.post_norm && !config.flag_or("_remove_final_layer_norm", false);
  return decoder_model(embedding, block, config.layers("num_hidden_layers"), head);
}

Model bloom(Config& config) {
  LayerShape block = biased_block(config, config.either("hidden_size", "n_embed"),
                                  config.either("n_head", "num_attention_heads"));
  block.tokens = config.sequence(config.size_or("seq_length", 2048));  // ALiBi sets no maximum
  block.ffn = config.size_or("n_inner", block.ffn);
  block.activation = Activation::gelu_tanh;
  block.alibi = true;
  if (config.flag_or("apply_residual_connection_post_layernorm", false))
    config.fail("apply_residual_connection_post_layernorm",
                "residuals that leave from behind a norm are not known",
                "plan a BLOOM whose residuals leave ahead of it");
  const std::int64_t vocab = config.size("vocab_size");
  LayerShape embedding = embedding_of(block, vocab);
  embedding.embedding_norm = true;
  return decoder_model(embedding, block,
                       config.layers(config.either("n_layer", "num_hidden_layers")),
                       head_of(block, vocab, config.flag_or("tie_word_embeddings", true)));
}

constexpr std::array kFamilies = {
    Family{"llama", llama}, Family{"mistral", mistral}, Family{"mixtral", mixtral},
    Family{"qwen2", qwen2}, Family{"qwen3", qwen3},     Family{"gpt2", gpt2},
    Family{"opt", opt},     Family{"phi3", phi3},       Family{"bloom", bloom},
};

}  // namespace

std::span<const Family> decoders() { return kFamilies; }

}  // namespace braid::huggingface
