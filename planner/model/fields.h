#pragma once
// The fields of a LayerShape as data: what a Braid model file may say of a layer, and how large
// each number may be.

#include <array>
#include <cstdint>

#include "planner/core/limits.h"
#include "planner/model/layer.h"

namespace braid {

struct SizeField {
  const char* name;
  std::int64_t LayerShape::*member;
  WholeLimit limit;  // zero: the layer has none
};

inline constexpr std::array kSizeFields = {
    SizeField{"tokens", &LayerShape::tokens, limits::kTokens},
    SizeField{"hidden", &LayerShape::hidden, limits::kWidth},
    SizeField{"heads", &LayerShape::heads, limits::kHeads},
    SizeField{"kv_heads", &LayerShape::kv_heads, limits::kHeads},
    SizeField{"head_dim", &LayerShape::head_dim, limits::kHeads},
    SizeField{"window", &LayerShape::window, limits::kTokens},
    SizeField{"window_shift", &LayerShape::window_shift, limits::kTokens},
    SizeField{"cross_tokens", &LayerShape::cross_tokens, limits::kTokens},
    SizeField{"carried_tokens", &LayerShape::carried_tokens, limits::kTokens},
    SizeField{"bias_buckets", &LayerShape::bias_buckets, limits::kRows},
    SizeField{"bias_distance", &LayerShape::bias_distance, limits::kRows},
    SizeField{"position_bias", &LayerShape::position_bias, limits::kRows},
    SizeField{"ffn", &LayerShape::ffn, limits::kWidth},
    SizeField{"experts", &LayerShape::experts, limits::kExperts},
    SizeField{"experts_per_token", &LayerShape::experts_per_token, limits::kExperts},
    SizeField{"shared_ffn", &LayerShape::shared_ffn, limits::kWidth},
    SizeField{"vocab", &LayerShape::vocab, limits::kRows},
    SizeField{"positions", &LayerShape::positions, limits::kRows},
    SizeField{"position_offset", &LayerShape::position_offset, limits::kRows},
    SizeField{"token_types", &LayerShape::token_types, limits::kRows},
    SizeField{"patch_inputs", &LayerShape::patch_inputs, limits::kWidth},
    SizeField{"head_dense", &LayerShape::head_dense, limits::kWidth},
    SizeField{"merge_outputs", &LayerShape::merge_outputs, limits::kWidth},
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
  double Struct::*member;
  RealLimit limit;
};

inline constexpr std::array kNumberFields = {
    NumberField<LayerShape>{"rotary_base", &LayerShape::rotary_base, limits::kRotaryBase},
    NumberField<LayerShape>{"norm_epsilon", &LayerShape::norm_epsilon, limits::kEpsilon},
    NumberField<LayerShape>{"output_scale", &LayerShape::output_scale, limits::kScale},
    NumberField<LayerShape>{"init_std", &LayerShape::init_std, limits::kDeviation},
    NumberField<LayerShape>{"residual_init_scale", &LayerShape::residual_init_scale,
                            limits::kScale},
};

// Those of "rotary_scaling", beside its "original_positions".
inline constexpr std::array kScalingFields = {
    NumberField<RotaryScaling>{"factor", &RotaryScaling::factor, limits::kScale},
    NumberField<RotaryScaling>{"low_frequency", &RotaryScaling::low_frequency, limits::kScale},
    NumberField<RotaryScaling>{"high_frequency", &RotaryScaling::high_frequency, limits::kScale},
};

}  // namespace braid
