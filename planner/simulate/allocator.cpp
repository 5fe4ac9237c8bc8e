#include "planner/simulate/allocator.h"

#include <algorithm>
#include <unordered_map>

#include "planner/core/error.h"

namespace braid {
namespace {

Bytes rounded_up(Bytes size, Bytes grain) {
  return Bytes((size.value() + grain.value() - 1) / grain.value() * grain.value());
}

}  // namespace

CachingAllocator::FreeBlock CachingAllocator::key(Handle handle) const {
  const Block& block = of(handle);
  return {block.stream, block.size, block.address, handle};
}

CachingAllocator::Handle CachingAllocator::new_block(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<Handle>(blocks_.size()) - 1;
  }
  const Handle handle = unused_.back();
  unused_.pop_back();
  of(handle) = block;
  return handle;
}

std::optional<CachingAllocator::Handle> CachingAllocator::allocate(Bytes size, int stream) {
  internal_check(size > Bytes(), "a tensor without bytes needs no memory");
  const Bytes rounded = rounded_up(size, rules_.grain);
  const bool large = rounded > rules_.small;
  std::optional<Handle> found = best_fit(rounded, stream, large);
  if (!found) found = new_segment(rounded, stream, large);
  if (!found) {
    release_free_segments();
    found = new_segment(rounded, stream, large);
  }
  if (!found) return std::nullopt;
  split(*found, rounded);
  Block& block = of(*found);
  block.used = true;
  block.requested = size;
  now_.requested += size;
  now_.allocated += block.size;
  peak_.requested = std::max(peak_.requested, now_.requested);
  peak_.allocated = std::max(peak_.allocated, now_.allocated);
  return found;
}

// The smallest free block that holds it; of equal ones the first in memory.
std::optional<CachingAllocator::Handle> CachingAllocator::best_fit(Bytes size, int stream,
                                                                   bool large) {
  auto& free = pool(large);
  const auto first = free.lower_bound({stream, size, 0, kNone});
  if (first == free.end() || first->stream != stream) return std::nullopt;
  const Handle handle = first->handle;
  free.erase(first);
  return handle;
}

Bytes CachingAllocator::segment_size(Bytes size) const {
  if (size <= rules_.small) return rules_.small_segment;
  if (size < rules_.own_segment) return rules_.large_segment;
  return rounded_up(size, rules_.segment_grain);
}

std::optional<CachingAllocator::Handle> CachingAllocator::new_segment(Bytes size, int stream,
                                                                      bool large) {
  const Bytes whole = segment_size(size);
  if (now_.reserved + whole > limit_) return std::nullopt;
  now_.reserved += whole;
  peak_.reserved = std::max(peak_.reserved, now_.reserved);
  const Handle handle = new_block({.address = next_address_,
                                   .size = whole,
                                   .requested = Bytes(),
                                   .stream = stream,
                                   .large = large});
  next_address_ += whole.value();
  return handle;
}

// The front of a block is used. What is left stays a free block if it is worth one: in the large
// pool that takes more than a small request.
void CachingAllocator::split(Handle handle, Bytes size) {
  const Bytes left = of(handle).size - size;
  const bool large = of(handle).large;
  if (large ? left <= rules_.small : left < rules_.grain) return;
  const Handle rest = new_block({.address = of(handle).address + size.value(),
                                 .size = left,
                                 .requested = Bytes(),
                                 .stream = of(handle).stream,
                                 .large = large,
                                 .before = handle,
                                 .behind = of(handle).behind});
  Block& front = of(handle);
  if (front.behind != kNone) of(front.behind).before = rest;
  front.behind = rest;
  front.size = size;
  pool(large).insert(key(rest));
}

void CachingAllocator::free(Handle handle) {
  Block& block = of(handle);
  internal_check(block.used, "a block is freed once");
  block.used = false;
  now_.requested -= block.requested;
  now_.allocated -= block.size;
  if (block.behind != kNone && !of(block.behind).used) {
    pool(block.large).erase(key(block.behind));
    merge(handle, block.behind);
  }
  if (block.before != kNone && !of(block.before).used) {
    const Handle before = block.before;
    pool(block.large).erase(key(before));
    merge(before, handle);
    handle = before;
  }
  pool(of(handle).large).insert(key(handle));
}

// Neither may stand in a pool: sizes are their keys.
void CachingAllocator::merge(Handle handle, Handle neighbour) {
  Block& front = of(handle);
  const Block& back = of(neighbour);
  front.size += back.size;
  front.behind = back.behind;
  if (back.behind != kNone) of(back.behind).before = handle;
  unused_.push_back(neighbour);
}

void CachingAllocator::release_free_segments() {
  for (std::set<FreeBlock>* free : {&small_, &large_}) {
    std::erase_if(*free, [&](const FreeBlock& entry) {
      const Block& block = of(entry.handle);
      if (block.before != kNone || block.behind != kNone) return false;
      now_.reserved -= block.size;
      unused_.push_back(entry.handle);
      return true;
    });
  }
}

ReplayedMemory replay(std::span<const MemoryEvent> events, Bytes limit) {
  CachingAllocator allocator(limit);
  std::unordered_map<int, CachingAllocator::Handle> live;
  ReplayedMemory result;
  for (std::size_t i = 0; i < events.size() && !result.failed; ++i) {
    const MemoryEvent& event = events[i];
    if (event.size == Bytes()) {
      const auto found = live.find(event.tensor);
      internal_check(found != live.end(), "only what lives is freed");
      allocator.free(found->second);
      live.erase(found);
      continue;
    }
    const auto block = allocator.allocate(event.size, event.stream);
    if (!block) {
      result.failed = i;
    } else {
      internal_check(live.emplace(event.tensor, *block).second, "a tensor is made once");
    }
  }
  result.peak = allocator.peak();
  result.end = allocator.now();
  return result;
}

}  // namespace braid
