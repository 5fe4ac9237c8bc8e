#pragma once
// A file as memory, read only. A file that is cut short meanwhile is an Error, not a SIGBUS. The
// pages belong to the system's cache: threads and processes of one machine share them, and a file
// larger than the memory is no problem.

#include <bit>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>

namespace braid::checkpoint {

class MappedFile {
 public:
  // Throws an Error when the file is absent, unreadable or not a regular file; an empty one is
  // fine.
  explicit MappedFile(std::filesystem::path file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  const std::filesystem::path& path() const { return path_; }

  // Throws an Error where the file has become shorter than what is mapped, or a page could not be
  // read: bytes read before the call may then be zeros. A system call; to follow each use of
  // bytes().
  void expect_whole() const;

 private:
  void release() noexcept;

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
  std::size_t watched_;  // its entry among the mapped ranges
};

// A fingerprint of the file's size and of 64 blocks of 4 KiB, the first and the last among them and
// the others evenly between; of all bytes where these are no more.
std::string sampled_content(const MappedFile& file);

// The formats read here are little-endian, and so is every machine that libtorch's builds run on.
static_assert(std::endian::native == std::endian::little);

// The number at a byte offset, aligned or not. The caller has checked that it lies inside.
template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace braid::checkpoint
