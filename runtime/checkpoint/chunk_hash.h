#pragma once
// Hashes of a file's chunks: computed while it is written, checked while it is read.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace braid::checkpoint {

inline constexpr std::int64_t kChunkBytes = std::int64_t{16} << 20;
inline constexpr const char* kHashName = "xxh3-128";

// 32 hexadecimal digits, the high half first, as `xxhsum -H2` prints them.
std::string hash_of(std::span<const std::byte> bytes);

// Takes a file's bytes in order and hashes each chunk of kChunkBytes; the last may be shorter.
class ChunkHasher {
 public:
  ChunkHasher();
  ~ChunkHasher();
  ChunkHasher(const ChunkHasher&) = delete;
  ChunkHasher& operator=(const ChunkHasher&) = delete;

  void add(std::span<const std::byte> bytes);
  std::int64_t bytes() const { return bytes_; }
  // Of all that was added, in order.
  std::vector<std::string> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::int64_t bytes_ = 0;
  std::vector<std::string> hashes_;
};

}  // namespace braid::checkpoint
