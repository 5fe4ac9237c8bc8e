#include "runtime/checkpoint/chunk_hash.h"

#include <fmt/core.h>

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace braid::checkpoint {

namespace {

std::string in_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

struct ChunkHasher::State {
  XXH3_state_t hash;
};

std::string hash_of(std::span<const std::byte> bytes) {
  return in_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

ChunkHasher::ChunkHasher() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->hash);
}

ChunkHasher::~ChunkHasher() = default;

void ChunkHasher::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t room = kChunkBytes - bytes_ % kChunkBytes;
    const std::size_t count = std::min(bytes.size(), static_cast<std::size_t>(room));
    XXH3_128bits_update(&state_->hash, bytes.data(), count);
    bytes_ += static_cast<std::int64_t>(count);
    bytes = bytes.subspan(count);
    if (bytes_ % kChunkBytes != 0) continue;
    hashes_.push_back(in_hex(XXH3_128bits_digest(&state_->hash)));
    XXH3_128bits_reset(&state_->hash);
  }
}

std::vector<std::string> ChunkHasher::finish() {
  if (bytes_ % kChunkBytes != 0) hashes_.push_back(in_hex(XXH3_128bits_digest(&state_->hash)));
  return std::move(hashes_);
}

}  // namespace braid::checkpoint
