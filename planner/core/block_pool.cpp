#include "planner/core/block_pool.h"

namespace braid {

Bytes BlockPool::rounded(Bytes bytes) {
  constexpr std::int64_t kPage = std::int64_t{2} << 20;  // of a GPU's memory
  constexpr Bytes kLarge(5 * kPage);
  if (bytes < kLarge) return bytes;
  return Bytes((bytes.value() + kPage - 1) / kPage * kPage);
}

BlockPool::Block BlockPool::find(Bytes bytes) const {
  const Bytes most = rounded(bytes) + rounded(bytes) / 4;
  Block best = kNone;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Entry& entry = blocks_[i];
    if (entry.used || entry.size < bytes || entry.size > most) continue;
    if (best == kNone || entry.size < size(best)) best = static_cast<Block>(i);
  }
  return best;
}

BlockPool::Block BlockPool::make(Bytes bytes) {
  blocks_.push_back({.size = rounded(bytes), .used = true});
  made_ += blocks_.back().size;
  return static_cast<Block>(blocks_.size()) - 1;
}

}  // namespace braid
