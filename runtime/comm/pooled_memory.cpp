#include "runtime/comm/pooled_memory.h"

namespace braid::comm {

std::shared_ptr<void> PooledMemory::take(std::int64_t bytes) {
  BlockPool::Block block = pool_.find(Bytes(bytes));
  if (block == BlockPool::kNone) {
    void* made = make(BlockPool::rounded(Bytes(bytes)));
    if (made == nullptr) return nullptr;
    block = pool_.make(Bytes(bytes));
    pieces_.push_back(made);
  }
  pool_.use(block);
  remember(block, true);
  return {pieces_[static_cast<std::size_t>(block)], [self = shared_from_this(), block](void*) {
            self->pool_.give_back(block);
            self->remember(block, false);
          }};
}

int PooledMemory::piece_of(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto* first = static_cast<const std::byte*>(pieces_[i]);
    const auto block = static_cast<BlockPool::Block>(i);
    if (at >= first && at < first + pool_.size(block).value()) return block;
  }
  return kNone;
}

void PooledMemory::remember(int piece, bool taken) {
  constexpr std::uint64_t kPrime = 1099511628211;  // of FNV-1a
  history_ = (history_ ^ static_cast<std::uint64_t>(2 * piece + (taken ? 1 : 0) + 1)) * kPrime;
}

}  // namespace braid::comm
