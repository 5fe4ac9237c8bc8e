#include "planner/model/huggingface_keys.h"

#include "planner/core/error.h"

namespace braid::huggingface {

namespace {

using enum KeyUse;

constexpr ConfigKey needed(std::string_view name) { return {name, read, "", ""}; }
constexpr ConfigKey reads(std::string_view name, std::string_view usual) {
  return {name, read, usual, ""};
}
constexpr ConfigKey other(std::string_view name, std::string_view of) {
  return {name, alias, of, ""};
}
constexpr ConfigKey ignored(std::string_view name, std::string_view reason) {
  return {name, harmless, "", reason};
}
constexpr ConfigKey drops(std::string_view name) {
  return {name, dropout, "0", "training takes its rate from --dropout"};
}
constexpr ConfigKey only(std::string_view name, std::string_view usual, std::string_view asks) {
  return {name, fixed, usual, asks};
}

constexpr std::string_view kAboutFile = "describes the file";
constexpr std::string_view kGeneration = "a setting of text generation";
constexpr std::string_view kToken = "samples hold the ids that are trained on";
constexpr std::string_view kOutputs = "says what a call returns";
constexpr std::string_view kSameNumbers = "another way to compute the same numbers";
constexpr std::string_view kOtherHead = "belongs to a head that is not trained here";
constexpr std::string_view kDerived = "follows from other keys";
constexpr std::string_view kNoPaddingRow = "the family's embedding has no padding row";

constexpr ConfigKey kCommon[] = {
    reads("model_type", ""),
    reads("braid_sequence", "null"),
    reads("braid_parameters", "null"),
    reads("architectures", "null"),
    ignored("_name_or_path", kAboutFile),
    ignored("name_or_path", kAboutFile),
    ignored("_commit_hash", kAboutFile),
    ignored("transformers_version", kAboutFile),
    ignored("auto_map", "Braid runs its own code"),
    ignored("dtype", "training takes --precision"),
    ignored("torch_dtype", "training takes --precision"),
    ignored("use_bfloat16", "training takes --precision"),
    ignored("attn_implementation", kSameNumbers),
    ignored("_attn_implementation", kSameNumbers),
    ignored("_attn_implementation_autoset", kSameNumbers),
    ignored("chunk_size_feed_forward", kSameNumbers),
    ignored("gradient_checkpointing", "a plan chooses what is recomputed"),
    ignored("torchscript", kOutputs),
    ignored("tf_legacy_loss", kOutputs),
    ignored("return_dict", kOutputs),
    ignored("output_attentions", kOutputs),
    ignored("output_hidden_states", kOutputs),
    ignored("use_cache", kGeneration),
    ignored("bos_token_id", kToken),
    ignored("eos_token_id", kToken),
    ignored("sep_token_id", kToken),
    ignored("unk_token_id", kToken),
    ignored("decoder_start_token_id", kToken),
    ignored("tokenizer_class", kToken),
    ignored("prefix", kToken),
    ignored("id2label", kOtherHead),
    ignored("label2id", kOtherHead),
    ignored("num_labels", kOtherHead),
    ignored("problem_type", kOtherHead),
    ignored("finetuning_task", kOtherHead),
    ignored("task_specific_params", kGeneration),
    ignored("max_length", kGeneration),
    ignored("min_length", kGeneration),
    ignored("do_sample", kGeneration),
    ignored("early_stopping", kGeneration),
    ignored("num_beams", kGeneration),
    ignored("num_beam_groups", kGeneration),
    ignored("diversity_penalty", kGeneration),
    ignored("temperature", kGeneration),
    ignored("top_k", kGeneration),
    ignored("top_p", kGeneration),
    ignored("typical_p", kGeneration),
    ignored("repetition_penalty", kGeneration),
    ignored("length_penalty", kGeneration),
    ignored("no_repeat_ngram_size", kGeneration),
    ignored("encoder_no_repeat_ngram_size", kGeneration),
    ignored("bad_words_ids", kGeneration),
    ignored("num_return_sequences", kGeneration),
    ignored("output_scores", kGeneration),
    ignored("return_dict_in_generate", kGeneration),
    ignored("forced_bos_token_id", kGeneration),
    ignored("forced_eos_token_id", kGeneration),
    ignored("remove_invalid_values", kGeneration),
    ignored("exponential_decay_length_penalty", kGeneration),
    ignored("suppress_tokens", kGeneration),
    ignored("begin_suppress_tokens", kGeneration),
    only("add_cross_attention", "false", "cross-attention"),
    only("cross_attention_hidden_size", "null", "cross-attention"),
    only("is_encoder_decoder", "false", "a pair of encoder and decoder"),
    only("tie_encoder_decoder", "false", "an encoder that shares the decoder's weights"),
    only("pruned_heads", "{}", "layers without some of their heads"),
    only("quantization_config", "null", "quantised weights"),
    only("per_layer_config", "null", "layers with settings of their own"),
    only("layer_types", "null", "layers of several kinds"),
};

// Of families without experts.
constexpr std::string_view kExperts = "experts";
constexpr ConfigKey kDense[] = {
    only("num_experts", "null", kExperts),
    only("num_local_experts", "null", kExperts),
    only("n_routed_experts", "null", kExperts),
    only("n_shared_experts", "null", kExperts),
    only("num_experts_per_tok", "null", kExperts),
    only("moe_intermediate_size", "null", kExperts),
    only("moe_num_experts", "null", kExperts),
    only("moe_layer_freq", "null", kExperts),
    only("shared_expert_intermediate_size", "null", kExperts),
    only("decoder_sparse_step", "null", kExperts),
    only("first_k_dense_replace", "null", kExperts),
    only("interleave_moe_layer_step", "null", kExperts),
};

constexpr ConfigKey kCausal[] = {
    only("is_causal", "true", "attention in both directions"),
    ignored("is_decoder", "the family always decodes"),
};

constexpr ConfigKey kRotary[] = {
    needed("vocab_size"),
    needed("hidden_size"),
    needed("intermediate_size"),
    needed("num_hidden_layers"),
    needed("num_attention_heads"),
    reads("hidden_act", R"("silu")"),
    reads("initializer_range", "0.02"),
    reads("tie_word_embeddings", "false"),
    reads("rope_parameters", "null"),
    reads("rope_scaling", "null"),
    reads("partial_rotary_factor", "1"),
    drops("attention_dropout"),
    reads("rms_norm_eps", "1e-6"),
    reads("rope_theta", "10000"),
    reads("head_dim", "null"),
    reads("pad_token_id", "null"),
    only("attention_bias", "false", "biases in attention"),
    only("mlp_bias", "false", "biases in the feed-forward"),
};

constexpr ConfigKey kLlama[] = {
    reads("num_key_value_heads", "null"),    reads("max_position_embeddings", "2048"),
    reads("attention_bias", "false"),        reads("mlp_bias", "false"),
    ignored("pretraining_tp", kSameNumbers),
};

constexpr ConfigKey kMistral[] = {
    reads("num_key_value_heads", "8"),
    reads("max_position_embeddings", "131072"),
    reads("sliding_window", "4096"),
};

constexpr ConfigKey kMixtral[] = {
    reads("num_key_value_heads", "8"),
    reads("max_position_embeddings", "131072"),
    reads("rms_norm_eps", "1e-5"),
    reads("rope_theta", "1000000"),
    reads("sliding_window", "null"),
    reads("num_local_experts", "8"),
    other("num_experts", "num_local_experts"),
    reads("num_experts_per_tok", "2"),
    only("output_router_logits", "false", "an auxiliary loss of the routers"),
    ignored("router_aux_loss_coef", "counts only with output_router_logits"),
    only("router_jitter_noise", "0", "noise ahead of the routers"),
};

constexpr ConfigKey kQwen2[] = {
    reads("num_key_value_heads", "32"),   reads("max_position_embeddings", "32768"),
    reads("use_sliding_window", "false"), reads("sliding_window", "4096"),
    reads("max_window_layers", "28"),     reads("layer_types", "null"),
};

constexpr ConfigKey kQwen3[] = {
    reads("num_key_value_heads", "32"),
    reads("max_position_embeddings", "32768"),
    reads("head_dim", "128"),
    reads("attention_bias", "false"),
    reads("use_sliding_window", "false"),
    reads("sliding_window", "4096"),
    reads("max_window_layers", "28"),
    reads("layer_types", "null"),
};

constexpr ConfigKey kPhi3[] = {
    reads("num_key_value_heads", "null"),
    reads("max_position_embeddings", "4096"),
    ignored("original_max_position_embeddings", "counts only for 'longrope', which is refused"),
    reads("rms_norm_eps", "1e-5"),
    reads("pad_token_id", "32000"),
    reads("sliding_window", "null"),
    drops("embd_pdrop"),
    drops("resid_pdrop"),
};

constexpr ConfigKey kGpt2[] = {
    needed("vocab_size"),
    needed("n_embd"),
    needed("n_layer"),
    needed("n_head"),
    reads("n_positions", "1024"),
    reads("n_inner", "null"),
    reads("activation_function", R"("gelu_new")"),
    reads("layer_norm_epsilon", "1e-5"),
    reads("initializer_range", "0.02"),
    reads("tie_word_embeddings", "true"),
    other("hidden_size", "n_embd"),
    other("num_hidden_layers", "n_layer"),
    other("num_attention_heads", "n_head"),
    other("max_position_embeddings", "n_positions"),
    only("scale_attn_weights", "true", "attention without scaled scores"),
    only("scale_attn_by_inverse_layer_idx", "false", "scores scaled by layer"),
    ignored("reorder_and_upcast_attn", kSameNumbers),
    ignored("pad_token_id", kNoPaddingRow),
    ignored("n_ctx", "older files repeat n_positions in it"),
    ignored("summary_activation", kOtherHead),
    ignored("summary_first_dropout", kOtherHead),
    ignored("summary_last_dropout", kOtherHead),
    ignored("summary_proj_to_labels", kOtherHead),
    ignored("summary_type", kOtherHead),
    ignored("summary_use_proj", kOtherHead),
    ignored("predict_special_tokens", kOtherHead),
    drops("resid_pdrop"),
    drops("embd_pdrop"),
    drops("attn_pdrop"),
};

constexpr ConfigKey kOpt[] = {
    needed("vocab_size"),
    needed("hidden_size"),
    needed("num_hidden_layers"),
    needed("num_attention_heads"),
    needed("ffn_dim"),
    reads("max_position_embeddings", "2048"),
    reads("do_layer_norm_before", "true"),
    reads("_remove_final_layer_norm", "false"),
    reads("word_embed_proj_dim", "null"),
    reads("activation_function", R"("relu")"),
    reads("init_std", "0.02"),
    reads("enable_bias", "true"),
    reads("pad_token_id", "1"),
    reads("tie_word_embeddings", "true"),
    only("layer_norm_elementwise_affine", "true", "norms without weights"),
    drops("dropout"),
    drops("attention_dropout"),
    drops("activation_dropout"),
    drops("layerdrop"),
};

constexpr ConfigKey kBloom[] = {
    needed("vocab_size"),
    needed("hidden_size"),
    needed("n_layer"),
    needed("n_head"),
    reads("layer_norm_epsilon", "1e-5"),
    reads("initializer_range", "0.02"),
    reads("tie_word_embeddings", "true"),
    reads("seq_length", "2048"),
    other("n_embed", "hidden_size"),
    other("num_hidden_layers", "n_layer"),
    other("num_attention_heads", "n_head"),
    only("n_inner", "null", "a feed-forward that is not four times the hidden size"),
    only("apply_residual_connection_post_layernorm", "false", "residuals that leave behind a norm"),
    ignored("pretraining_tp", kSameNumbers),
    ignored("slow_but_exact", kSameNumbers),
    ignored("attention_softmax_in_fp32", kSameNumbers),
    ignored("bias_dropout_fusion", kSameNumbers),
    ignored("masked_softmax_fusion", kSameNumbers),
    ignored("skip_bias_add", kSameNumbers),
    ignored("skip_bias_add_qkv", kSameNumbers),
    ignored("offset_alibi", kSameNumbers),
    ignored("pad_token_id", kNoPaddingRow),
    drops("hidden_dropout"),
    drops("attention_dropout"),
};

constexpr ConfigKey kBert[] = {
    needed("vocab_size"),
    needed("hidden_size"),
    needed("num_hidden_layers"),
    needed("num_attention_heads"),
    needed("intermediate_size"),
    reads("hidden_act", R"("gelu")"),
    reads("max_position_embeddings", "512"),
    reads("type_vocab_size", "2"),
    reads("initializer_range", "0.02"),
    reads("layer_norm_eps", "1e-12"),
    reads("pad_token_id", "0"),
    reads("tie_word_embeddings", "true"),
    only("position_embedding_type", R"("absolute")", "positions relative to each other"),
    only("is_decoder", "false", "attention that looks back only"),
    ignored("classifier_dropout", kOtherHead),
    ignored("directionality", kOtherHead),
    ignored("pooler_fc_size", kOtherHead),
    ignored("pooler_num_attention_heads", kOtherHead),
    ignored("pooler_num_fc_layers", kOtherHead),
    ignored("pooler_size_per_head", kOtherHead),
    ignored("pooler_type", kOtherHead),
    drops("hidden_dropout_prob"),
    drops("attention_probs_dropout_prob"),
};

constexpr ConfigKey kT5[] = {
    needed("vocab_size"),
    needed("d_model"),
    needed("d_kv"),
    needed("d_ff"),
    needed("num_layers"),
    needed("num_heads"),
    reads("num_decoder_layers", "null"),
    reads("relative_attention_num_buckets", "32"),
    reads("relative_attention_max_distance", "128"),
    reads("layer_norm_epsilon", "1e-6"),
    reads("feed_forward_proj", R"("relu")"),
    reads("dense_act_fn", "null"),
    reads("is_gated_act", "null"),
    reads("tie_word_embeddings", "true"),
    reads("scale_decoder_outputs", "null"),
    reads("braid_decoder_sequence", "null"),
    other("hidden_size", "d_model"),
    other("num_hidden_layers", "num_layers"),
    other("num_attention_heads", "num_heads"),
    other("head_dim", "d_kv"),
    ignored("initializer_factor", "Braid draws first weights of its own for T5"),
    ignored("pad_token_id", kNoPaddingRow),
    ignored("n_positions", "T5's positions are relative"),
    ignored("output_past", kGeneration),
    ignored("classifier_dropout", kOtherHead),
    only("is_encoder_decoder", "true", "one stack alone"),
    only("is_decoder", "false", "one stack alone"),
    only("is_causal", "true", "a decoder that looks ahead"),
    drops("dropout_rate"),
};

constexpr ConfigKey kImage[] = {
    reads("num_channels", "3"),
    reads("image_size", "224"),
    reads("qkv_bias", "true"),
    reads("hidden_act", R"("gelu")"),
    reads("initializer_range", "0.02"),
    reads("num_labels", "null"),
    reads("id2label", "null"),
    reads("problem_type", "null"),
    only("is_decoder", "false", "attention that looks back only"),
    ignored("braid_sequence", "an image has as many tokens as patches"),
    ignored("pad_token_id", kNoPaddingRow),
    ignored("encoder_stride", kOtherHead),
    ignored("tie_word_embeddings", "an image model has no table of words"),
    drops("hidden_dropout_prob"),
    drops("attention_probs_dropout_prob"),
};

constexpr ConfigKey kVit[] = {
    needed("hidden_size"),
    needed("num_hidden_layers"),
    needed("num_attention_heads"),
    needed("intermediate_size"),
    reads("patch_size", "16"),
    reads("layer_norm_eps", "1e-12"),
    ignored("pooler_act", kOtherHead),
    ignored("pooler_output_size", kOtherHead),
    only("head_dim", "null", "heads that are not the hidden size divided by their number"),
};

constexpr ConfigKey kSwin[] = {
    needed("embed_dim"),
    needed("depths"),
    needed("num_heads"),
    reads("patch_size", "4"),
    reads("window_size", "7"),
    reads("mlp_ratio", "4"),
    reads("use_absolute_embeddings", "false"),
    reads("layer_norm_eps", "1e-5"),
    other("num_attention_heads", "num_heads"),
    ignored("hidden_size", kDerived),
    ignored("num_layers", kDerived),
    ignored("num_hidden_layers", kDerived),
    ignored("stage_names", kDerived),
    ignored("out_features", kOtherHead),
    ignored("out_indices", kOtherHead),
    ignored("_out_features", kOtherHead),
    ignored("_out_indices", kOtherHead),
    ignored("path_norm", "no released class reads it"),
    drops("drop_path_rate"),
};

// In the order of precedence: a family's own key replaces one that it shares.
struct FamilyKeys {
  std::string_view family;
  std::string_view architecture;
  std::span<const ConfigKey> own;
  std::span<const ConfigKey> kind;  // rotary or image families
  bool causal = false;
  bool dense = true;
};
constexpr FamilyKeys kFamilies[] = {
    {"llama", "LlamaForCausalLM", kLlama, kRotary, true},
    {"mistral", "MistralForCausalLM", kMistral, kRotary, true},
    {"mixtral", "MixtralForCausalLM", kMixtral, kRotary, true, false},
    {"qwen2", "Qwen2ForCausalLM", kQwen2, kRotary, true},
    {"qwen3", "Qwen3ForCausalLM", kQwen3, kRotary, true},
    {"phi3", "Phi3ForCausalLM", kPhi3, kRotary, true},
    {"gpt2", "GPT2LMHeadModel", kGpt2, {}, true},
    {"opt", "OPTForCausalLM", kOpt, {}, true},
    {"bloom", "BloomForCausalLM", kBloom, {}, true},
    {"bert", "BertForMaskedLM", kBert, {}},
    {"t5", "T5ForConditionalGeneration", kT5, {}},
    {"vit", "ViTForImageClassification", kVit, kImage},
    {"swin", "SwinForImageClassification", kSwin, kImage},
};

const FamilyKeys& of_family(std::string_view name) {
  for (const FamilyKeys& family : kFamilies)
    if (family.family == name) return family;
  internal_check(false, "every family has keys");
  return kFamilies[0];
}

std::vector<std::span<const ConfigKey>> tables_of(const FamilyKeys& family) {
  std::vector<std::span<const ConfigKey>> tables = {family.own, family.kind};
  if (family.causal) tables.emplace_back(kCausal);
  if (family.dense) tables.emplace_back(kDense);
  tables.emplace_back(kCommon);
  return tables;
}

}  // namespace

const ConfigKey* find_key(std::string_view family, std::string_view name) {
  for (const std::span<const ConfigKey> table : tables_of(of_family(family)))
    for (const ConfigKey& key : table)
      if (key.name == name) return &key;
  return nullptr;
}

std::vector<ConfigKey> keys_of(std::string_view family) {
  std::vector<ConfigKey> keys;
  for (const std::span<const ConfigKey> table : tables_of(of_family(family)))
    for (const ConfigKey& key : table)
      if (find_key(family, key.name) == &key) keys.push_back(key);
  return keys;
}

std::string_view architecture_of(std::string_view family) { return of_family(family).architecture; }

}  // namespace braid::huggingface
