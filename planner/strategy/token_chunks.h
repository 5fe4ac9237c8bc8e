#pragma once
// In how many chunks a layer's tokens pass through a megatron group, so that one is multiplied
// while the next is gathered and the one before is scattered. Planner and runtime follow this one
// rule.

#include "planner/strategy/strategy.h"

namespace braid {

// Of a chunk in one device's products: below that they lose more than overlap hides.
inline constexpr std::int64_t kLeastChunkRows = 512;

// Of a layer with so many tokens a sample, and so many samples on a device.
constexpr int token_chunks(const Strategy& s, std::int64_t tokens, double samples,
                           std::int64_t least_rows = kLeastChunkRows) {
  if (s.tp == 1 || s.tp_kind != TensorKind::megatron) return 1;
  constexpr int kChunks = 2;
  const std::int64_t wide = tokens / s.cp, narrow = wide / s.tp;
  const bool long_enough =
      static_cast<double>(wide) * samples >= static_cast<double>(kChunks * least_rows);
  return narrow % kChunks == 0 && narrow > 0 && long_enough ? kChunks : 1;
}

}  // namespace braid
