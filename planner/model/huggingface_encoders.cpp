// Encoders, encoder-decoders and image models. Defaults for absent keys are those of Hugging Face's
// config classes.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/model/huggingface.h"

namespace braid::huggingface {

namespace {

constexpr std::size_t kMaxStages = 8;

// BERT, ViT and Swin: every query sees all keys (of its window), a bias on every matrix, no gate.
LayerShape encoder_block(std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
  return {.hidden = hidden,
          .attention = AttentionKind::bidirectional,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn = ffn,
          .qkv_bias = true,
          .attention_out_bias = true,
          .ffn_bias = true};
}

struct Patches {
  std::int64_t side = 0;    // patches along one side of the image
  std::int64_t inputs = 0;  // values of one patch
};

Patches patches_of(Config& config) {
  const std::int64_t image = config.side("image_size");
  const std::int64_t patch = config.side("patch_size");
  if (patch > image)
    config.fail("patch_size", fmt::format("a patch of {} exceeds the image of {}", patch, image),
                "choose a patch_size of at most image_size");
  return {.side = image / patch, .inputs = patch * patch * config.size("num_channels")};
}

void read_norm_and_init(Config& config, LayerShape& block) {
  block.norm_epsilon = config.positive_number("layer_norm_eps");
  block.init_std = config.positive_number("initializer_range");
}

LayerShape classifier(const LayerShape& last_block, std::int64_t labels) {
  return {.kind = LayerKind::head,
          .tokens = last_block.tokens,
          .hidden = last_block.hidden,
          .norm_epsilon = last_block.norm_epsilon,
          .vocab = labels,
          .final_norm = true,
          .head_bias = true,
          .pooled = true,
          .init_std = last_block.init_std};
}

// "feed_forward_proj" is "relu", "gelu", "gated-gelu" (the tanh formula) or "gated-silu". Configs
// that transformers 5 saved say what it made of it in two more keys, which win.
Activation t5_activation(Config& config) {
  constexpr std::string_view kGated = "gated-";
  const std::string text = config.text("feed_forward_proj");
  const bool gated = config.optional_flag("is_gated_act").value_or(text.starts_with(kGated));
  std::string name = text.starts_with(kGated) ? text.substr(kGated.size()) : text;
  if (text == "gated-gelu") name = "gelu_new";
  const auto said = config.optional_text("dense_act_fn");
  return config.activation_named(said.value_or(name), gated,
                                 said ? "dense_act_fn" : "feed_forward_proj");
}

// Half of the buckets are of one direction, half of those of one distance each.
void check_buckets(const Config& config, const LayerShape& encoder) {
  if (encoder.bias_buckets % 4 != 0)
    config.fail("relative_attention_num_buckets",
                fmt::format("{} buckets are not four equal parts", encoder.bias_buckets),
                "choose a multiple of 4");
  if (encoder.bias_distance <= encoder.bias_buckets / 2)
    config.fail("relative_attention_max_distance",
                fmt::format("{} tokens are no further than the buckets of single distances reach",
                            encoder.bias_distance),
                fmt::format("choose more than {}", encoder.bias_buckets / 2));
}

// One Swin stage: its blocks at one resolution and width.
struct Stage {
  std::int64_t side = 0, hidden = 0, heads = 0, window = 0;
};

LayerShape swin_block(Config& config, const Stage& stage) {
  const auto ffn = static_cast<std::int64_t>(
      std::floor(config.number("mlp_ratio") * static_cast<double>(stage.hidden)));
  LayerShape block = encoder_block(stage.hidden, stage.heads, ffn);
  block.attention = AttentionKind::window;
  block.tokens = stage.side * stage.side;
  const std::int64_t side = std::min(stage.window, stage.side);
  block.window = side * side;
  if (stage.side > stage.window) block.window_shift = stage.window / 2;
  // One entry for each offset between two tokens of a window, in both directions.
  block.position_bias = (2 * stage.window - 1) * (2 * stage.window - 1);
  block.qkv_bias = config.flag("qkv_bias");
  block.activation = config.plain_activation("hidden_act");
  read_norm_and_init(config, block);
  return block;
}

// The masked-language-model head: transform (dense, activation, norm), tied decoder and its bias.
Model bert(Config& config) {
  const std::int64_t hidden = config.size("hidden_size");
  config.head_dim(hidden, "num_attention_heads");
  LayerShape block =
      encoder_block(hidden, config.size("num_attention_heads"), config.size("intermediate_size"));
  const std::int64_t reach = config.size("max_position_embeddings");
  block.tokens = config.sequence(std::min<std::int64_t>(reach, 512));
  block.post_norm = true;
  block.activation = config.plain_activation("hidden_act");
  read_norm_and_init(config, block);
  const std::int64_t vocab = config.size("vocab_size");
  const LayerShape embedding = {.kind = LayerKind::embedding,
                                .tokens = block.tokens,
                                .hidden = hidden,
                                .norm_epsilon = block.norm_epsilon,
                                .vocab = vocab,
                                .padding_id = config.padding_id(vocab),
                                .positions = reach,
                                .token_types = config.count("type_vocab_size"),
                                .embedding_norm = true,
                                .init_std = block.init_std};
  const LayerShape head = {.kind = LayerKind::head,
                           .tokens = block.tokens,
                           .hidden = hidden,
                           .activation = block.activation,
                           .norm_epsilon = block.norm_epsilon,
                           .vocab = vocab,
                           .head_dense = hidden,
                           .head_bias = true,
                           .tied = config.flag("tie_word_embeddings"),
                           .init_std = block.init_std};
  return assemble({{.type = {"embedding", embedding}},
                   {.type = {"encoder", block}, .count = config.layers("num_hidden_layers")},
                   {.type = {"head", head}}});
}

Model t5(Config& config) {
  const std::int64_t heads = config.size("num_heads");
  LayerShape encoder = {.tokens = config.sequence(512),
                        .hidden = config.size("d_model"),
                        .attention = AttentionKind::bidirectional,
                        .heads = heads,
                        .kv_heads = heads,
                        .head_dim = config.size("d_kv"),  // heads × d_kv need not be d_model
                        .bias_buckets = config.size("relative_attention_num_buckets"),
                        .bias_distance = config.size("relative_attention_max_distance"),
                        .unscaled = true,
                        .ffn = config.size("d_ff"),
                        .activation = t5_activation(config),
                        .norm = NormKind::rms_norm,
                        .norm_epsilon = config.positive_number("layer_norm_epsilon")};
  check_buckets(config, encoder);
  LayerShape decoder = encoder;
  decoder.attention = AttentionKind::causal;
  decoder.tokens = config.optional_size("braid_decoder_sequence").value_or(encoder.tokens);
  decoder.cross_tokens = encoder.tokens;
  encoder.carried_tokens = decoder.tokens;
  LayerShape last = encoder;
  last.final_norm = true;
  const std::int64_t vocab = config.size("vocab_size");
  const LayerShape embedding = {.kind = LayerKind::embedding,
                                .tokens = encoder.tokens,
                                .hidden = encoder.hidden,
                                .carried_tokens = decoder.tokens,
                                .heads = heads,
                                // One table for all blocks of a stack, so two in all.
                                .position_bias = 2 * encoder.bias_buckets,
                                .norm = NormKind::rms_norm,
                                .norm_epsilon = encoder.norm_epsilon,
                                .vocab = vocab};
  const bool tied = config.flag("tie_word_embeddings");
  // Configs of transformers before 5 say both by one key.
  const bool scaled = config.optional_flag("scale_decoder_outputs").value_or(tied);
  const LayerShape head = {
      .kind = LayerKind::head,
      .tokens = decoder.tokens,
      .hidden = encoder.hidden,
      .norm = NormKind::rms_norm,
      .norm_epsilon = encoder.norm_epsilon,
      .vocab = vocab,
      .final_norm = true,
      .tied = tied,
      .output_scale = scaled ? 1 / std::sqrt(static_cast<double>(encoder.hidden)) : 1};
  const int layers = config.layers("num_layers");
  const bool uneven = config.optional_size("num_decoder_layers").has_value();
  std::vector<Run> runs = {{.type = {"embedding", embedding}}};
  if (layers > 1) runs.push_back({.type = {"encoder", encoder}, .count = layers - 1});
  runs.push_back({.type = {"last_encoder", last}});
  runs.push_back({.type = {"decoder", decoder},
                  .count = uneven ? config.layers("num_decoder_layers") : layers});
  runs.push_back({.type = {"head", head}});
  return assemble(runs);
}

Model vit(Config& config) {
  const std::int64_t hidden = config.size("hidden_size");
  config.head_dim(hidden, "num_attention_heads");
  const Patches patches = patches_of(config);
  LayerShape block =
      encoder_block(hidden, config.size("num_attention_heads"), config.size("intermediate_size"));
  block.tokens = patches.side * patches.side + 1;
  block.qkv_bias = config.flag("qkv_bias");
  block.activation = config.plain_activation("hidden_act");
  read_norm_and_init(config, block);
  const LayerShape embedding = {.kind = LayerKind::embedding,
                                .tokens = block.tokens,
                                .hidden = hidden,
                                .positions = block.tokens,
                                .patch_inputs = patches.inputs,
                                .class_token = true,
                                .init_std = block.init_std};
  LayerShape head = classifier(block, config.labels());
  head.class_token = true;
  return assemble({{.type = {"embedding", embedding}},
                   {.type = {"encoder", block}, .count = config.layers("num_hidden_layers")},
                   {.type = {"head", head}}});
}

Model swin(Config& config) {
  const std::vector<std::int64_t> depths = config.sizes("depths");
  const std::vector<std::int64_t> heads = config.sizes("num_heads");
  if (heads.size() != depths.size() || depths.size() > kMaxStages)
    config.fail("num_heads",
                fmt::format("{} head counts for {} stages", heads.size(), depths.size()),
                fmt::format("give one for each entry of depths, at most {}", kMaxStages));
  const Patches patches = patches_of(config);
  Stage stage = {.side = patches.side,
                 .hidden = config.size("embed_dim"),
                 .window = config.size("window_size")};
  const std::int64_t tokens = stage.side * stage.side;
  LayerShape embedding = {.kind = LayerKind::embedding,
                          .tokens = tokens,
                          .hidden = stage.hidden,
                          .patch_inputs = patches.inputs,
                          .embedding_norm = true,
                          .init_std = config.positive_number("initializer_range")};
  if (config.flag("use_absolute_embeddings")) embedding.positions = tokens;
  std::vector<Run> runs = {{.type = {"embedding", embedding}}};
  for (std::size_t i = 0; i < depths.size(); ++i) {
    stage.heads = heads[i];
    if (stage.hidden % stage.heads != 0)
      config.fail(
          fmt::format("num_heads[{}]", i),
          fmt::format("{} heads do not divide the stage's width {}", stage.heads, stage.hidden),
          fmt::format("choose a divisor of {}", stage.hidden));
    runs.push_back({.type = {fmt::format("stage{}", i + 1), swin_block(config, stage)},
                    .count = static_cast<int>(depths[i])});
    if (i + 1 == depths.size()) break;
    if (stage.side % 2 != 0)
      config.fail("image_size",
                  fmt::format("{} patches a side cannot be merged in pairs", stage.side),
                  "choose image_size and patch_size so that every stage but the last is even");
    runs.push_back({.type = {fmt::format("merge{}", i + 1),
                             {.kind = LayerKind::merge,
                              .tokens = stage.side * stage.side,
                              .hidden = stage.hidden,
                              .merge_outputs = 2 * stage.hidden,
                              .init_std = embedding.init_std}}});
    stage.side /= 2;
    stage.hidden *= 2;
  }
  const LayerShape head = classifier(runs.back().type.shape, config.labels());
  runs.push_back({.type = {"head", head}});
  return assemble(runs);
}

constexpr std::array kFamilies = {
    Family{"bert", bert},
    Family{"t5", t5},
    Family{"vit", vit},
    Family{"swin", swin},
};

}  // namespace

std::span<const Family> encoders() { return kFamilies; }

}  // namespace braid::huggingface
