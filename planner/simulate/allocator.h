#pragma once
// A model of PyTorch's caching allocator, from its documented behaviour: what a device reserves for
// the tensors that come and go. Sizes are rounded, small and large requests live in pools of their
// own, a request takes the smallest free block that holds it, and memory goes back to the device
// only when there is no other way.

#include <compare>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "planner/core/units.h"

namespace braid {

struct AllocatorRules {
  Bytes grain = Bytes(512);               // sizes are multiples of it
  Bytes small = Bytes(1 << 20);           // up to here a request is small
  Bytes small_segment = Bytes(2 << 20);   // that small requests share
  Bytes large_segment = Bytes(20 << 20);  // that large requests share …
  Bytes own_segment = Bytes(10 << 20);    // … up to here; from here on they get their own
  Bytes segment_grain = Bytes(2 << 20);   // of which the size is a multiple
};

struct AllocatorBytes {
  Bytes requested;  // by tensors that live
  Bytes allocated;  // the blocks they were given
  Bytes reserved;   // taken from the device

  constexpr bool operator==(const AllocatorBytes&) const = default;
};

class CachingAllocator {
 public:
  using Handle = int;

  explicit CachingAllocator(Bytes limit = Bytes(std::numeric_limits<std::int64_t>::max()),
                            const AllocatorRules& rules = {})
      : limit_(limit), rules_(rules) {}

  // None when the device has no more, not even after all free segments went back. Streams do not
  // share blocks.
  std::optional<Handle> allocate(Bytes size, int stream = 0);
  void free(Handle handle);

  const AllocatorBytes& now() const { return now_; }
  // Each at its own worst moment.
  const AllocatorBytes& peak() const { return peak_; }
  // Where the block lies. Segments follow each other in the order of their making.
  std::int64_t address(Handle handle) const { return of(handle).address; }

 private:
  static constexpr int kNone = -1;
  struct Block {
    std::int64_t address = 0;
    Bytes size, requested;
    int stream = 0;
    bool large = false, used = false;
    int before = kNone, behind = kNone;  // neighbours in the segment
  };
  struct FreeBlock {
    int stream = 0;
    Bytes size;
    std::int64_t address = 0;
    Handle handle = kNone;
    constexpr auto operator<=>(const FreeBlock&) const = default;
  };

  Block& of(Handle handle) { return blocks_[static_cast<std::size_t>(handle)]; }
  const Block& of(Handle handle) const { return blocks_[static_cast<std::size_t>(handle)]; }
  std::set<FreeBlock>& pool(bool large) { return large ? large_ : small_; }
  FreeBlock key(Handle handle) const;
  Handle new_block(const Block& block);
  std::optional<Handle> best_fit(Bytes size, int stream, bool large);
  std::optional<Handle> new_segment(Bytes size, int stream, bool large);
  Bytes segment_size(Bytes size) const;
  void split(Handle handle, Bytes size);
  void merge(Handle handle, Handle neighbour);
  void release_free_segments();

  Bytes limit_;
  AllocatorRules rules_;
  std::vector<Block> blocks_;
  std::vector<Handle> unused_;  // places of blocks_
  std::set<FreeBlock> small_, large_;
  std::int64_t next_address_ = 0;
  AllocatorBytes now_, peak_;
};

// A tensor is made, or freed where it has no size.
struct MemoryEvent {
  int tensor = 0;
  Bytes size = {};
  int stream = 0;

  constexpr bool operator==(const MemoryEvent&) const = default;
};

struct ReplayedMemory {
  AllocatorBytes peak;
  AllocatorBytes end;
  std::optional<std::size_t>
      failed;  // the event that found no memory; nothing behind it was played
};
// Events name each tensor once, and free only what lives.
ReplayedMemory replay(std::span<const MemoryEvent> events,
                      Bytes limit = Bytes(std::numeric_limits<std::int64_t>::max()));

}  // namespace braid
