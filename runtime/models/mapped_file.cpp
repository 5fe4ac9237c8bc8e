#include "runtime/models/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "planner/core/error.h"

namespace braid::models {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, int reason) {
  throw Error({.what = fmt::format("cannot read the file: {}", std::strerror(reason)),
               .where = file.string(),
               .fix = "check the path and its permissions"});
}

void unmap(std::span<const std::byte> bytes) {
  if (!bytes.empty()) munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path file) : path_(std::move(file)) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer before it is refused.
  const int descriptor = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse(path_, errno);
  struct stat status {};
  const bool known = fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    close(descriptor);
    throw Error({.what = S_ISDIR(status.st_mode) ? "this is a folder, not a file"
                                                 : "this is not a regular file",
                 .where = path_.string(),
                 .fix = "name a file on a disk"});
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {
    void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    const int reason = errno;
    if (memory == MAP_FAILED) {
      close(descriptor);
      refuse(path_, reason);
    }
    bytes_ = {static_cast<const std::byte*>(memory), size};
  }
  close(descriptor);
}

MappedFile::~MappedFile() { unmap(bytes_); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap(bytes_);
  path_ = std::move(other.path_);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

}  // namespace braid::models
