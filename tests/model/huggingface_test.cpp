// How each family's config becomes layers, and what a reader is told when one is wrong.

#include <gtest/gtest.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/model/model.h"

namespace braid {
namespace {

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 128,
  "vocab_size": 100, "max_position_embeddings": 256})";
constexpr const char* kPhi3 = R"({"model_type": "phi3", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 128,
  "vocab_size": 100, "max_position_embeddings": 256, "pad_token_id": 99})";
constexpr const char* kGpt2 = R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
  "n_positions": 128, "vocab_size": 100})";
constexpr const char* kOpt = R"({"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "ffn_dim": 256, "vocab_size": 100, "max_position_embeddings": 128})";
constexpr const char* kBloom = R"({"model_type": "bloom", "hidden_size": 64, "n_layer": 2,
  "n_head": 4, "vocab_size": 100, "seq_length": 32})";
constexpr const char* kBert = R"({"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 100,
  "max_position_embeddings": 512})";
constexpr const char* kVit = R"({"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 256, "image_size": 32, "patch_size": 8})";
constexpr const char* kSwin = R"({"model_type": "swin", "embed_dim": 32, "depths": [1, 2],
  "num_heads": [2, 4], "image_size": 56, "patch_size": 4})";
constexpr const char* kT5 = R"({"model_type": "t5", "d_model": 64, "d_kv": 32, "d_ff": 128,
  "num_layers": 3, "num_heads": 4, "vocab_size": 100})";

constexpr std::int64_t kLongest = 8192;  // trained at unless asked

// `base` with the keys of `changes` put in; null removes a key.
Json changed(const char* base, const char* changes) {
  Json json = parse_json(base, "config.json");
  json.merge_patch(parse_json(changes, "changes"));
  return json;
}

Model read(const char* base, const char* changes = "{}", std::int64_t sequence = 0) {
  return model_from_json(changed(base, changes), "config.json", sequence);
}

const LayerShape& shape(const Model& model, const std::string& name) {
  for (const LayerType& type : model.types)
    if (type.name == name) return type.shape;
  throw std::out_of_range(name);
}

TEST(Llama, HasGroupedRotaryHeadsAndNoBias) {
  const Model model = read(kLlama);
  const LayerShape expected = {.tokens = 256,
                               .hidden = 64,
                               .attention = AttentionKind::causal,
                               .heads = 8,
                               .kv_heads = 2,
                               .head_dim = 8,
                               .rotary = true,
                               .ffn = 128,
                               .activation = Activation::swiglu,
                               .norm = NormKind::rms_norm,
                               .norm_epsilon = 1e-6};
  EXPECT_EQ(shape(model, "decoder"), expected);
  EXPECT_EQ(model.layers, (std::vector<int>{0, 1, 1, 2}));
  EXPECT_EQ(model.family, "llama");
  EXPECT_FALSE(shape(model, "head").tied);
}

TEST(Llama, TakesWhatTheConfigOverrides) {
  const Model model = read(kLlama, R"({"num_key_value_heads": null, "head_dim": 16,
      "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true,
      "hidden_act": "gelu_pytorch_tanh", "something_new": [1, 2]})");
  const LayerShape block = shape(model, "decoder");
  EXPECT_EQ(block.kv_heads, 8);
  EXPECT_EQ(block.head_dim, 16);
  EXPECT_TRUE(block.qkv_bias && block.attention_out_bias && block.ffn_bias);
  EXPECT_EQ(block.activation, Activation::geglu_tanh);
  EXPECT_TRUE(shape(model, "head").tied);
}

TEST(Mistral, HasAWindowUnlessItIsNull) {
  Json json = changed(kLlama, R"({"model_type": "mistral"})");
  EXPECT_EQ(shape(model_from_json(json, "c"), "decoder").window, 4096);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(shape(model_from_json(json, "c"), "decoder").window, 0);
  json["sliding_window"] = 32;
  EXPECT_EQ(shape(model_from_json(json, "c"), "decoder").window, 32);
}

TEST(Phi3, HasAWindowWhereTheConfigNamesOne) {
  EXPECT_EQ(shape(read(kPhi3), "decoder").window, 0);
  const Model windowed = read(kPhi3, R"({"sliding_window": 32})");
  EXPECT_EQ(shape(windowed, "decoder").window, 32);
}

TEST(Qwen2, HasBiasesOnQkvOnlyAndALateWindow) {
  const Model plain = read(kLlama, R"({"model_type": "qwen2", "sliding_window": 32})");
  EXPECT_TRUE(shape(plain, "decoder").qkv_bias);
  EXPECT_FALSE(shape(plain, "decoder").attention_out_bias);
  EXPECT_EQ(shape(plain, "decoder").window, 0);
  const Model late = read(kLlama, R"({"model_type": "qwen2", "sliding_window": 32,
      "use_sliding_window": true, "max_window_layers": 1})");
  EXPECT_EQ(late.type_of(1).shape.window, 0);
  EXPECT_EQ(late.type_of(2).shape.window, 32);
  EXPECT_EQ(late.type_of(2).name, "windowed");
  const Model all = read(kLlama, R"({"model_type": "qwen2", "sliding_window": 32,
      "use_sliding_window": true, "max_window_layers": 0})");
  EXPECT_EQ(all.type_of(1).shape.window, 32);
}

// Of transformers 4.53 and later; the list wins over max_window_layers.
TEST(Qwen, HasAWindowInTheLayersThatLayerTypesNames) {
  for (const char* family : {"qwen2", "qwen3"}) {
    Json json = changed(kLlama, R"({"num_hidden_layers": 4, "use_sliding_window": true,
        "sliding_window": 32, "max_window_layers": 1, "layer_types":
        ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})");
    json["model_type"] = family;
    const Model mixed = model_from_json(json, "c");
    std::vector<std::int64_t> windows;
    for (int i = 1; i < 5; ++i) windows.push_back(mixed.type_of(i).shape.window);
    EXPECT_EQ(windows, (std::vector<std::int64_t>{32, 0, 32, 0})) << family;
    json["layer_types"] =
        Json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
    EXPECT_EQ(model_from_json(json, "c").types.size(), 3U) << family;
  }
}

TEST(PaddingIds, AreTheConfigsOrTheFamilys) {
  struct Case {
    const char* base;
    const char* changes;
    std::int64_t expected;
  };
  constexpr Case kCases[] = {
      {kLlama, "{}", kNoPadding},
      {kLlama, R"({"pad_token_id": 7})", 7},
      {kLlama, R"({"pad_token_id": -1})", 99},
      {kOpt, "{}", 1},
      {kBert, "{}", 0},
      {kPhi3, "{}", 99},
      {kGpt2, R"({"pad_token_id": 7})", kNoPadding},
      {kT5, "{}", kNoPadding},
  };
  for (const Case& c : kCases)
    EXPECT_EQ(shape(read(c.base, c.changes), "embedding").padding_id, c.expected)
        << c.base << c.changes;
  Json json = changed(kBert, "{}");
  json["pad_token_id"] = nullptr;
  EXPECT_EQ(shape(model_from_json(json, "c"), "embedding").padding_id, kNoPadding);
}

TEST(MaximumPositions, AreTheFamilysWhereTheConfigHasNone) {
  struct Case {
    const char* base;
    const char* changes;
    std::int64_t sequence;
  };
  constexpr Case kCases[] = {
      {kLlama, R"({"max_position_embeddings": null})", 2048},
      {kPhi3, R"({"max_position_embeddings": null})", 4096},
      {kLlama, R"({"model_type": "mistral", "max_position_embeddings": null})", kLongest},
      {kLlama, R"({"model_type": "qwen2", "num_key_value_heads": 2,
                   "max_position_embeddings": null})",
       kLongest},
      {kGpt2, R"({"n_positions": null})", 1024},
      {kOpt, R"({"max_position_embeddings": null})", 2048},
      {kBert, R"({"max_position_embeddings": null})", 512},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(read(c.base, c.changes).sequence, c.sequence) << c.base;
    EXPECT_EQ(read(c.base, c.changes, 64).sequence, 64) << c.base;
  }
}

TEST(Mixtral, HasExperts) {
  const Model model = read(kLlama, R"({"model_type": "mixtral", "num_local_experts": 4})");
  EXPECT_EQ(shape(model, "decoder").experts, 4);
  EXPECT_EQ(shape(model, "decoder").experts_per_token, 2);
}

TEST(Opt, HasTwoRowsAheadOfItsPositions) {
  const Model model = read(kOpt);
  EXPECT_EQ(shape(model, "embedding").positions, 130);
  EXPECT_EQ(model.sequence, 128);
  EXPECT_THROW(with_sequence(model, 129), Error);
}

TEST(Opt, HasNormsBehindItsSumsWhereTheyAreNotBefore) {
  EXPECT_FALSE(shape(read(kOpt), "decoder").post_norm);
  EXPECT_TRUE(shape(read(kOpt), "head").final_norm);
  const Model model = read(kOpt, R"({"do_layer_norm_before": false})");
  EXPECT_TRUE(shape(model, "decoder").post_norm);
  EXPECT_FALSE(shape(model, "head").final_norm);
}

TEST(Bloom, IsReadUnderBothSpellings) {
  const Model old_keys = read(R"({"model_type": "bloom", "n_embed": 64, "n_layer": 2,
      "num_attention_heads": 4, "vocab_size": 100, "seq_length": 32})");
  const Model new_keys = read(kBloom);
  EXPECT_EQ(to_json(old_keys), to_json(new_keys));
  EXPECT_TRUE(shape(new_keys, "embedding").embedding_norm);
  EXPECT_TRUE(shape(new_keys, "decoder").alibi);
}

TEST(Bert, PredictsMaskedTokensThroughATransform) {
  const LayerShape head = shape(read(kBert), "head");
  EXPECT_EQ(head.head_dense, 64);
  EXPECT_TRUE(head.tied && head.head_bias);
  EXPECT_FALSE(head.final_norm);
  EXPECT_TRUE(shape(read(kBert), "encoder").post_norm);
}

TEST(Vit, CountsPatchesClassTokenAndLabels) {
  const Model model = read(kVit, R"({"id2label": {"0": "cat", "1": "dog", "2": "owl"}})");
  EXPECT_EQ(model.sequence, 17);
  EXPECT_EQ(shape(model, "embedding").patch_inputs, 192);
  EXPECT_EQ(shape(model, "head").vocab, 3);
  EXPECT_TRUE(shape(model, "head").class_token);
  EXPECT_EQ(shape(read(kVit), "head").vocab, 2);
}

TEST(T5, HasTwoStacks) {
  const Model model = read(kT5, R"({"num_decoder_layers": 1, "braid_sequence": 64,
      "braid_decoder_sequence": 4})");
  EXPECT_EQ(model.layers, (std::vector<int>{0, 1, 1, 2, 3, 4}));
  EXPECT_TRUE(shape(model, "last_encoder").final_norm);
  EXPECT_EQ(shape(model, "encoder").carried_tokens, 4);
  EXPECT_EQ(shape(model, "embedding").carried_tokens, 4);
  EXPECT_EQ(shape(model, "encoder").attention, AttentionKind::bidirectional);
  EXPECT_EQ(shape(model, "decoder").cross_tokens, 64);
  EXPECT_EQ(shape(model, "decoder").tokens, 4);
  EXPECT_EQ(shape(model, "head").tokens, 4);
  EXPECT_EQ(shape(model, "encoder").activation, Activation::relu);
  EXPECT_EQ(shape(read(kT5, R"({"feed_forward_proj": "gated-gelu"})"), "decoder").activation,
            Activation::geglu_tanh);
}

// 64 wide: 1.0 scales what its tied matrix sees, 1.1 has a matrix of its own, and transformers 5
// says the two apart.
TEST(T5, ScalesTheOutputOfATiedHead) {
  EXPECT_EQ(shape(read(kT5), "head").output_scale, 0.125);
  const Model own = read(kT5, R"({"tie_word_embeddings": false})");
  EXPECT_EQ(shape(own, "head").output_scale, 1);
  const Model said = read(kT5, R"({"scale_decoder_outputs": false})");
  EXPECT_TRUE(shape(said, "head").tied);
  EXPECT_EQ(shape(said, "head").output_scale, 1);
}

TEST(T5, HasOneTableOfPositionsForEachStack) {
  const Model model = read(kT5, R"({"relative_attention_num_buckets": 16})");
  EXPECT_EQ(shape(model, "embedding").position_bias, 32);
  EXPECT_EQ(shape(model, "encoder").bias_buckets, 16);
  EXPECT_EQ(shape(model, "decoder").bias_distance, 128);
  EXPECT_THROW(read(kT5, R"({"relative_attention_num_buckets": 6})"), Error);
  EXPECT_THROW(read(kT5, R"({"relative_attention_max_distance": 16})"), Error);
}

TEST(T5, AtAnotherLengthKeepsAShorterDecoder) {
  const Model even = read(kT5, "{}", 128);
  EXPECT_EQ(shape(even, "decoder").tokens, 128);
  EXPECT_EQ(shape(even, "decoder").cross_tokens, 128);
  const Model uneven = read(kT5, R"({"braid_decoder_sequence": 4})", 128);
  EXPECT_EQ(shape(uneven, "encoder").tokens, 128);
  EXPECT_EQ(shape(uneven, "decoder").tokens, 4);
  EXPECT_EQ(shape(uneven, "decoder").cross_tokens, 128);
  EXPECT_EQ(shape(uneven, "encoder").carried_tokens, 4);
  EXPECT_EQ(shape(even, "encoder").carried_tokens, 128);
}

TEST(Swin, HalvesTheImageBetweenStages) {
  const Model model = read(kSwin);
  EXPECT_EQ(model.layers, (std::vector<int>{0, 1, 2, 3, 3, 4}));
  EXPECT_EQ(model.types[2].name, "merge1");
  EXPECT_EQ(shape(model, "stage1").tokens, 196);
  EXPECT_EQ(shape(model, "stage1").window, 49);
  EXPECT_EQ(shape(model, "stage1").position_bias, 169);
  EXPECT_EQ(shape(model, "stage1").window_shift, 3);
  EXPECT_EQ(shape(model, "stage2").window_shift, 0) << "one window is the image";
  EXPECT_EQ(shape(model, "stage2").tokens, 49);
  EXPECT_EQ(shape(model, "stage2").hidden, 64);
}

// Defaults of the config classes of transformers 5.
struct NumbersCase {
  const char* fact;
  const char* base;
  const char* changes;
  double norm_epsilon;
  double rotary_base;
  double init_std;
};

constexpr NumbersCase kNumbers[] = {
    {"llama as it is", kLlama, "{}", 1e-6, 1e4, 0.02},
    {"mixtral as it is", kLlama, R"({"model_type": "mixtral"})", 1e-5, 1e6, 0.02},
    {"qwen3 as it is", kLlama, R"({"model_type": "qwen3"})", 1e-6, 1e4, 0.02},
    {"phi3 as it is", kPhi3, "{}", 1e-5, 1e4, 0.02},
    {"null is absent", kLlama, R"({"rope_theta": null, "rms_norm_eps": null})", 1e-6, 1e4, 0.02},
    {"llama with its own", kLlama,
     R"({"rms_norm_eps": 1e-5, "rope_theta": 5e5, "initializer_range": 0.01})", 1e-5, 5e5, 0.01},
    {"a base beside a scaling", kLlama,
     R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "default"}})", 1e-6, 5e5, 0.02},
    {"a base inside the parameters", kLlama,
     R"({"rope_parameters": {"rope_theta": 2e7, "rope_type": "default"}})", 1e-6, 2e7, 0.02},
    {"a rotation of all of the head, said so", kLlama,
     R"({"rope_parameters": {"rope_theta": 2e7, "partial_rotary_factor": 1.0}})", 1e-6, 2e7, 0.02},
    {"gpt2 as it is", kGpt2, "{}", 1e-5, 1e4, 0.02},
    {"gpt2 with its own", kGpt2, R"({"layer_norm_epsilon": 1e-6, "initializer_range": 0.01})", 1e-6,
     1e4, 0.01},
    {"opt's epsilon is fixed", kOpt, R"({"layer_norm_epsilon": 1e-6, "init_std": 0.006})", 1e-5,
     1e4, 0.006},
    {"bert as it is", kBert, "{}", 1e-12, 1e4, 0.02},
    {"t5 as it is", kT5, "{}", 1e-6, 1e4, 0.02},
};

TEST(Numbers, AreTheConfigsOrTheFamilys) {
  for (const NumbersCase& c : kNumbers) {
    const Model model = read(c.base, c.changes);
    EXPECT_EQ(model.type_of(1).shape.rotary_base, c.rotary_base) << c.fact;
    for (const LayerType& type : model.types) {
      EXPECT_EQ(type.shape.norm_epsilon, c.norm_epsilon) << c.fact << ": " << type.name;
      EXPECT_EQ(type.shape.init_std, c.init_std) << c.fact << ": " << type.name;
    }
  }
}

// Where a layer has no norm of the config's, its epsilon stays the usual one.
TEST(Numbers, OfImageModelsReachEveryNormThatHasThem) {
  const Model vit = read(kVit, R"({"initializer_range": 0.01})");
  for (const LayerType& type : vit.types) EXPECT_EQ(type.shape.init_std, 0.01) << type.name;
  EXPECT_EQ(shape(vit, "encoder").norm_epsilon, 1e-12);
  EXPECT_EQ(shape(vit, "head").norm_epsilon, 1e-12);
  const Model swin = read(kSwin, R"({"layer_norm_eps": 1e-6, "initializer_range": 0.01})");
  for (const LayerType& type : swin.types) EXPECT_EQ(type.shape.init_std, 0.01) << type.name;
  EXPECT_EQ(shape(swin, "embedding").norm_epsilon, 1e-5);
  EXPECT_EQ(shape(swin, "stage2").norm_epsilon, 1e-6);
  EXPECT_EQ(shape(swin, "merge1").norm_epsilon, 1e-5);
  EXPECT_EQ(shape(swin, "head").norm_epsilon, 1e-6);
}

struct ScalingCase {
  const char* fact;
  const char* changes;
  RotaryScaling expected;
};

constexpr ScalingCase kScalings[] = {
    {"none", "{}", {}},
    {"null is none", R"({"rope_scaling": null})", {}},
    {"default is none", R"({"rope_parameters": {"rope_type": "default", "factor": 8.0}})", {}},
    {"linear, under the old key",
     R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
     {.factor = 2}},
    {"llama3",
     R"({"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 2.0,
         "high_freq_factor": 8.0, "original_max_position_embeddings": 64}})",
     {.factor = 32, .low_frequency = 2, .high_frequency = 8, .original_positions = 64}},
    {"llama3 from all positions, inside the parameters",
     R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8,
         "low_freq_factor": 1, "high_freq_factor": 4}})",
     {.factor = 8, .original_positions = 256}},
};

TEST(RotaryScalings, AreReadFromEitherDictionary) {
  for (const ScalingCase& c : kScalings)
    EXPECT_EQ(shape(read(kLlama, c.changes), "decoder").rotary_scaling, c.expected) << c.fact;
}

struct ActivationCase {
  const char* base;
  const char* changes;
  Activation expected;
};

constexpr ActivationCase kActivations[] = {
    {kBert, "{}", Activation::gelu},
    {kBert, R"({"hidden_act": "gelu_python"})", Activation::gelu},
    {kBert, R"({"hidden_act": "gelu_fast"})", Activation::gelu_tanh},
    {kBert, R"({"hidden_act": "relu"})", Activation::relu},
    {kGpt2, "{}", Activation::gelu_tanh},
    {kGpt2, R"({"activation_function": "gelu"})", Activation::gelu},
    {kLlama, R"({"hidden_act": "gelu"})", Activation::geglu},
    {kT5, R"({"feed_forward_proj": "gated-silu"})", Activation::swiglu},
};

TEST(Activations, TellTheTwoFormulasOfGeluApart) {
  for (const ActivationCase& c : kActivations)
    EXPECT_EQ(read(c.base, c.changes).type_of(1).shape.activation, c.expected) << c.changes;
}

TEST(Gpt2, ShrinksTheFirstWeightsOfTheResidualStreamByDepth) {
  EXPECT_EQ(shape(read(kGpt2), "decoder").residual_init_scale, 0.5);  // 1 / √(2 × 2)
  EXPECT_EQ(shape(read(kLlama), "decoder").residual_init_scale, 1);
}

TEST(ModelSequence, IsCappedForLongContextConfigs) {
  EXPECT_EQ(read(kLlama, R"({"max_position_embeddings": 131072})").sequence, 8192);
  EXPECT_EQ(read(kLlama, "{}", 100000).sequence, 100000);
  EXPECT_EQ(read(kBert, R"({"max_position_embeddings": 4096})").sequence, 512);
}

TEST(ModelNames, ComeFromTheFileOrItsFolder) {
  const Json json = changed(kGpt2, "{}");
  EXPECT_EQ(model_from_json(json, "models/tiny.json").name, "tiny");
  EXPECT_EQ(model_from_json(json, "models/tiny/config.json").name, "tiny");
  EXPECT_EQ(model_from_json(json, "config.json").name, "gpt2");
}

struct MistakeCase {
  const char* fact;
  const char* base;
  const char* changes;
  std::int64_t sequence;
  const char* what;
  const char* where;
  const char* fix;
};

constexpr MistakeCase kMistakes[] = {
    {"an unknown family", kLlama, R"({"model_type": "lama"})", 0, "family 'lama' are not read",
     "config.json: model_type", "bert, bloom, gpt2, llama"},
    {"a family of experts whose name is near a dense one's", kLlama,
     R"({"model_type": "qwen3_moe"})", 0, "family 'qwen3_moe' are not read",
     "config.json: model_type", "mixtures of experts too, as a braid.model"},
    {"experts in a dense family", kLlama,
     R"({"model_type": "qwen3", "num_experts": 128, "num_experts_per_tok": 8})", 0,
     "asks for experts, which a qwen3 model here does not have", "config.json: num_experts",
     "as a braid.model, whose blocks may have experts"},
    {"an odd head that rotary positions would turn", kLlama, R"({"head_dim": 3})", 0,
     "a head of 3 has one value left over", "config.json: types[1].head_dim", "an even head_dim"},
    {"an alias that contradicts its key", kGpt2, R"({"hidden_size": 32})", 0,
     "otherwise than 'n_embd'", "config.json: hidden_size", "leave one"},
    {"two numbers of labels", kVit, R"({"num_labels": 3, "id2label": {"0": "a", "1": "b"}})", 0,
     "3 labels, but id2label has 2", "config.json: num_labels", "make the two agree"},
    {"one label, which is a regression", kVit, R"({"num_labels": 1})", 0, "by regression",
     "config.json: num_labels", "at least 2"},
    {"a padding token outside the vocabulary", kLlama, R"({"pad_token_id": 100})", 0,
     "100 is no row of the 100", "config.json: pad_token_id", "null for no padding"},
    {"types of other layers than there are", kLlama,
     R"({"model_type": "qwen2", "layer_types": ["full_attention"]})", 0, "1 types for 2 layers",
     "config.json: layer_types", "one for each layer"},
    {"a type of layer that is not known", kLlama,
     R"({"model_type": "qwen2", "layer_types": ["full_attention", "linear_attention"]})", 0,
     "'linear_attention' are not known", "config.json: layer_types[1]", "sliding_attention"},
    {"sliding layers without a window", kLlama,
     R"({"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]})", 0,
     "window that is switched off", "config.json: layer_types", "set use_sliding_window"},
    {"an image that is no square", kVit, R"({"image_size": [32, 64]})", 0, "only square images",
     "config.json: image_size", "two equal ones"},
    {"neither format", kLlama, R"({"model_type": null})", 0, "neither a Hugging Face config",
     "config.json", "\"model_type\""},
    {"a missing key", kLlama, R"({"hidden_size": null})", 0, "'hidden_size' is missing",
     "config.json", "add \"hidden_size\""},
    {"a string for a number", kLlama, R"({"vocab_size": "100"})", 0, "expected a whole number",
     "config.json: vocab_size", "without quotes"},
    {"a negative size", kLlama, R"({"intermediate_size": -1})", 0, "-1 is out of range",
     "config.json: intermediate_size", "from 1"},
    {"a size past all sense", kLlama, R"({"hidden_size": 1099511627776})", 0, "out of range",
     "config.json: hidden_size", "from 1"},
    {"no layers", kLlama, R"({"num_hidden_layers": 0})", 0, "0 is out of range",
     "config.json: num_hidden_layers", "from 1"},
    {"heads that do not divide", kLlama, R"({"num_attention_heads": 6})", 0,
     "6 heads do not divide the hidden size 64", "config.json: num_attention_heads",
     "divisor of 64"},
    {"kv heads that do not divide", kLlama, R"({"num_key_value_heads": 3})", 0,
     "3 key-value heads do not divide 8 heads", "config.json: num_key_value_heads", "divisor of 8"},
    {"more experts than there are", kLlama,
     R"({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5})", 0,
     "5 experts a token", "config.json: num_experts_per_tok", "at most 4"},
    {"an unknown gated activation", kLlama, R"({"hidden_act": "tanh"})", 0, "'tanh'",
     "config.json: hidden_act", "silu or gelu"},
    {"a gelu by the logistic function", kBert, R"({"hidden_act": "quick_gelu"})", 0, "'quick_gelu'",
     "config.json: hidden_act", "gelu_new"},
    {"an epsilon of zero", kLlama, R"({"rms_norm_eps": 0})", 0, "0 is out of range",
     "config.json: rms_norm_eps", "positive"},
    {"a rotary scaling nobody computes", kLlama,
     R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})", 0, "'yarn'",
     "config.json: rope_scaling.rope_type", "default, linear or llama3"},
    {"phi3's rotary scaling by lists of factors", kLlama,
     R"({"model_type": "phi3", "rope_scaling": {"type": "longrope", "long_factor": [1.5],
         "short_factor": [1.0]}})",
     0, "'longrope'", "config.json: rope_scaling.type", "default, linear or llama3"},
    {"a rotary scaling without its factor", kLlama, R"({"rope_scaling": {"type": "linear"}})", 0,
     "'factor' is missing", "config.json: rope_scaling", "add \"factor\""},
    {"rotary positions on a part of the head", kLlama, R"({"partial_rotary_factor": 0.75})", 0,
     "on 0.75 of each head", "config.json: partial_rotary_factor", "a factor of 1"},
    {"a part of the head among the rotary parameters", kLlama,
     R"({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}})", 0,
     "on 0.5 of each head", "config.json: rope_parameters.partial_rotary_factor", "a factor of 1"},
    {"rotary positions that differ between layers", kLlama,
     R"({"rope_parameters": {"full_attention": {"rope_theta": 10000.0}}})", 0,
     "differ between layers", "config.json: rope_parameters.full_attention", "one set"},
    {"another number of parameters than the config states", kLlama,
     R"({"braid_parameters": 82753})", 0, "have 82752 parameters, not 82753",
     "config.json: braid_parameters", "leave the key out"},
    {"scores without a scale", kGpt2, R"({"scale_attn_weights": false})", 0,
     "without scaled scores", "config.json: scale_attn_weights", "with true here"},
    {"scores scaled by layer", kGpt2, R"({"scale_attn_by_inverse_layer_idx": true})", 0,
     "scaled by layer", "config.json: scale_attn_by_inverse_layer_idx", "with false here"},
    {"an unknown activation", kGpt2, R"({"activation_function": "silu"})", 0, "'silu'",
     "config.json: activation_function", "relu"},
    {"a flag that is a number", kLlama, R"({"tie_word_embeddings": 1})", 0,
     "expected true or false", "config.json: tie_word_embeddings", "true or false"},
    {"longer than the learned positions", kGpt2, "{}", 129, "longer than the 128 learned positions",
     "gpt2: sequence", "at most 128"},
    {"a config that asks for more than its positions", kGpt2, R"({"braid_sequence": 200})", 0,
     "more than the 128 learned positions", "config.json: types[0].tokens", "at most 128"},
    {"a negative sequence", kLlama, "{}", -1, "out of range", "llama: sequence", "ask for 1 to"},
    {"an image of another length", kVit, "{}", 64, "always 17 tokens", "vit: sequence",
     "image_size"},
    {"a projected embedding", kOpt, R"({"word_embed_proj_dim": 32})", 0, "need a projection",
     "config.json: word_embed_proj_dim", "opt-350m"},
    {"relative positions in BERT", kBert, R"({"position_embedding_type": "relative_key"})", 0,
     "relative to each other", "config.json: position_embedding_type", "absolute"},
    {"residuals from behind a norm", kBloom,
     R"({"apply_residual_connection_post_layernorm": true})", 0, "behind a norm",
     "config.json: apply_residual_connection_post_layernorm", "with false here"},
    {"a patch larger than the image", kVit, R"({"patch_size": 64})", 0, "exceeds the image",
     "config.json: patch_size", "at most image_size"},
    {"no labels at all", kVit, R"({"num_labels": 0})", 0, "0 is out of range",
     "config.json: num_labels", "from 1"},
    {"stages without heads", kSwin, R"({"num_heads": [2]})", 0, "1 head counts for 2 stages",
     "config.json: num_heads", "one for each"},
    {"a stage's heads that do not divide", kSwin, R"({"num_heads": [2, 5]})", 0,
     "5 heads do not divide", "config.json: num_heads[1]", "divisor of 64"},
    {"stages that cannot be merged", kSwin, R"({"image_size": 28})", 0, "cannot be merged",
     "config.json: image_size", "even"},
    {"an empty list of stages", kSwin, R"({"depths": []})", 0, "the list is empty",
     "config.json: depths", "one number for each stage"},
    {"a number in place of a list", kSwin, R"({"depths": 4})", 0, "expected a list",
     "config.json: depths", "[ ... ]"},
};

TEST(HuggingFaceMistakes, SayWhatWhereAndHowToFix) {
  for (const MistakeCase& c : kMistakes) {
    try {
      read(c.base, c.changes, c.sequence);
      ADD_FAILURE() << c.fact << " went unnoticed";
    } catch (const Error& error) {
      const Mistake& found = error.mistake();
      EXPECT_NE(found.what.find(c.what), std::string::npos) << c.fact << ": " << found.what;
      EXPECT_EQ(found.where, c.where) << c.fact;
      EXPECT_NE(found.fix.find(c.fix), std::string::npos) << c.fact << ": " << found.fix;
    }
  }
}

TEST(HuggingFaceMistakes, AListIsNoConfig) {
  EXPECT_THROW(model_from_json(parse_json("[1]", "config.json"), "config.json"), Error);
}

}  // namespace
}  // namespace braid
