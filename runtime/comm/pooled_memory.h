#pragma once
// What a backend hands out as Group::allocate() says: pieces that go back to their pool when nobody
// holds them any more.

#include <memory>
#include <vector>

#include "planner/core/block_pool.h"

namespace braid::comm {

class PooledMemory : public std::enable_shared_from_this<PooledMemory> {
 public:
  virtual ~PooledMemory() = default;
  PooledMemory(const PooledMemory&) = delete;
  PooledMemory& operator=(const PooledMemory&) = delete;

  // Null where a piece would have to be made and cannot be.
  std::shared_ptr<void> take(std::int64_t bytes);
  // The number of the piece that an address lies in, in the order of their making; or kNone.
  static constexpr int kNone = BlockPool::kNone;
  int piece_of(const void* address) const;

 protected:
  PooledMemory() = default;
  virtual void* make(braid::Bytes size) = 0;  // null: as above
  const std::vector<void*>& pieces() const { return pieces_; }
  braid::Bytes made() const { return pool_.made(); }
  // Of all requests and returns so far: equal where their order was.
  std::int64_t history() const { return static_cast<std::int64_t>(history_); }

 private:
  void remember(int piece, bool taken);

  BlockPool pool_;
  std::vector<void*> pieces_;  // by block
  std::uint64_t history_ = 0;
};

}  // namespace braid::comm
