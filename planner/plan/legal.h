#pragma once
// Which splits of one layer, and which precisions, can be run at all. Search and verify share these
// rules: search asks for the value, thousands of times and without an allocation; verify asks for
// the words.

#include <cstdint>
#include <optional>

#include "planner/core/error.h"
#include "planner/model/layer.h"
#include "planner/strategy/strategy.h"

namespace braid {

// The rule that a strategy breaks.
enum class StrategyFault {
  tp_power_of_two,
  cp_power_of_two,
  dp_divides_micro_batch,
  tp_divides_heads,
  tp_fits_kv_heads,
  tp_divides_width,
  split_divides_tokens,
  ring_halves_tokens,
  cp_needs_sequence,
  ep_needs_experts,
  ep_divides_experts,
  ep_divides_dp,
  zero_needs_replicas,
  recompute_needs_block,
  square_needs_its_kind,
  square_side,
  square_divides_tp,
  square_needs_dense_block,
  square_divides_heads,
  square_divides_width,
  square_divides_tokens,
  paper_is_one_square,
};

// The first rule broken when a micro-batch of `micro_batch` samples meets this layer; none: legal.
// Whether the strategy fills its stage is the caller's to know.
std::optional<StrategyFault> strategy_fault(const LayerShape& layer, const Strategy& strategy,
                                            std::int64_t micro_batch);

// The fault in words; `where` is the field of the strategy to change.
Mistake describe(StrategyFault fault, const LayerShape& layer, const Strategy& strategy,
                 std::int64_t micro_batch);

// Gradients are never rounded more than the model they are of.
constexpr bool can_have_gradients(Precision compute, Precision gradients) {
  return compute != Precision::fp32 || gradients == Precision::fp32;
}

}  // namespace braid
