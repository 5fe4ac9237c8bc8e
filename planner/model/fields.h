#pragma once
// The fields of a LayerShape as data: what a Braid model file may say of a layer, and how large
// each number may be.

#include <array>
#include <cstdint>

#include "planner/model/layer.h"

namespace braid {

// The limits lie far above any model and keep every product of a layer's closed forms inside 63
// bits.
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 24;  // tokens, table rows
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;  // hidden, ffn
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 14;
inline constexpr std::int64_t kMaxExperts = std::int64_t{1} << 12;
inline constexpr std::int64_t kMaxLayers = 10'000;

struct SizeField {
  const char* name;
  std::int64_t LayerShape::*member;
  std::int64_t limit;
};

inline constexpr std::array kSizeFields = {
    SizeField{"tokens", &LayerShape::tokens, kMaxCount},
    SizeField{"hidden", &LayerShape::hidden, kMaxWidth},
    SizeField{"heads", &LayerShape::heads, kMaxHeads},
    SizeField{"kv_heads", &LayerShape::kv_heads, kMaxHeads},
    SizeField{"head_dim", &LayerShape::head_dim, kMaxHeads},
    SizeField{"window", &LayerShape::window, kMaxCount},
    SizeField{"window_shift", &LayerShape::window_shift, kMaxCount},
    SizeField{"cross_tokens", &LayerShape::cross_tokens, kMaxCount},
    SizeField{"carried_tokens", &LayerShape::carried_tokens, kMaxCount},
    SizeField{"bias_buckets", &LayerShape::bias_buckets, kMaxCount},
    SizeField{"bias_distance", &LayerShape::bias_distance, kMaxCount},
    SizeField{"position_bias", &LayerShape::position_bias, kMaxCount},
    SizeField{"ffn", &LayerShape::ffn, kMaxWidth},
    SizeField{"experts", &LayerShape::experts, kMaxExperts},
    SizeField{"experts_per_token", &LayerShape::experts_per_token, kMaxExperts},
    SizeField{"shared_ffn", &LayerShape::shared_ffn, kMaxWidth},
    SizeField{"vocab", &LayerShape::vocab, kMaxCount},
    SizeField{"positions", &LayerShape::positions, kMaxCount},
    SizeField{"position_offset", &LayerShape::position_offset, kMaxCount},
    SizeField{"token_types", &LayerShape::token_types, kMaxCount},
    SizeField{"patch_inputs", &LayerShape::patch_inputs, kMaxWidth},
    SizeField{"head_dense", &LayerShape::head_dense, kMaxWidth},
    SizeField{"merge_outputs", &LayerShape::merge_outputs, kMaxWidth},
};

struct FlagField {
  const char* name;
  bool LayerShape::*member;
};

inline constexpr std::array kFlagFields = {
    FlagField{"alibi", &LayerShape::alibi},
    FlagField{"unscaled", &LayerShape::unscaled},
    FlagField{"rotary", &LayerShape::rotary},
    FlagField{"qkv_bias", &LayerShape::qkv_bias},
    FlagField{"attention_out_bias", &LayerShape::attention_out_bias},
    FlagField{"ffn_bias", &LayerShape::ffn_bias},
    FlagField{"qk_norm", &LayerShape::qk_norm},
    FlagField{"post_norm", &LayerShape::post_norm},
    FlagField{"class_token", &LayerShape::class_token},
    FlagField{"embedding_norm", &LayerShape::embedding_norm},
    FlagField{"final_norm", &LayerShape::final_norm},
    FlagField{"head_bias", &LayerShape::head_bias},
    FlagField{"tied", &LayerShape::tied},
    FlagField{"pooled", &LayerShape::pooled},
};

template <class Struct>
struct NumberField {
  const char* name;
  double Struct::*member;  // positive
};

inline constexpr std::array kNumberFields = {
    NumberField<LayerShape>{"rotary_base", &LayerShape::rotary_base},
    NumberField<LayerShape>{"norm_epsilon", &LayerShape::norm_epsilon},
    NumberField<LayerShape>{"output_scale", &LayerShape::output_scale},
    NumberField<LayerShape>{"init_std", &LayerShape::init_std},
    NumberField<LayerShape>{"residual_init_scale", &LayerShape::residual_init_scale},
};

// Those of "rotary_scaling", beside its "original_positions".
inline constexpr std::array kScalingFields = {
    NumberField<RotaryScaling>{"factor", &RotaryScaling::factor},
    NumberField<RotaryScaling>{"low_frequency", &RotaryScaling::low_frequency},
    NumberField<RotaryScaling>{"high_frequency", &RotaryScaling::high_frequency},
};

}  // namespace braid
