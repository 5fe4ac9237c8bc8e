#include "runtime/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>  // sigaction is POSIX: <csignal> need not declare it
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "planner/core/error.h"
#include "planner/profile/fingerprint.h"

namespace braid::checkpoint {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, int reason) {
  throw Error({.what = fmt::format("cannot read the file: {}", std::strerror(reason)),
               .where = file.string(),
               .fix = "check the path and its permissions"});
}

// Where files are mapped, for the handler of SIGBUS: a page that its file no longer reaches, or
// that the disk cannot give.
struct Range {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // equal: this entry is free
  std::atomic<bool> lost{false};                 // part of it was replaced by zeros
};
constexpr std::size_t kRanges = 4096;
std::array<Range, kRanges> ranges;
std::mutex ranges_mutex;  // of who adds and removes; the handler takes no lock
struct sigaction action_before;
std::uintptr_t page_bytes = 0;

Range* range_of(std::uintptr_t address) {
  for (Range& range : ranges)
    if (address >= range.begin.load() && address < range.end.load()) return &range;
  return nullptr;
}

// Puts zeros in the place of what is lost, so that the read goes on; expect_whole() tells. Any
// other SIGBUS gets the action that was there before: the access is repeated under it.
extern "C" void on_bus_error(int, siginfo_t* info, void*) {
  const int error = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  Range* range = range_of(address);
  if (range != nullptr) {
    const std::uintptr_t in_page = address & (page_bytes - 1);
    void* page = static_cast<std::byte*>(info->si_addr) - in_page;
    void* zeros = mmap(page, range->end.load() - (address - in_page), PROT_READ,
                       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) range = nullptr;
  }
  if (range != nullptr)
    range->lost = true;
  else
    sigaction(SIGBUS, &action_before, nullptr);
  errno = error;
}

void handle_bus_errors() {
  page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &action_before);
}

// The entry of a new mapping; kRanges where there are too many to be watched.
std::size_t watch(std::span<const std::byte> bytes) {
  static std::once_flag once;
  std::call_once(once, handle_bus_errors);
  const std::scoped_lock lock(ranges_mutex);
  for (std::size_t i = 0; i < kRanges; ++i) {
    Range& range = ranges[i];
    if (range.end.load() != 0) continue;
    range.lost = false;
    range.begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    range.end = range.begin.load() + bytes.size();
    return i;
  }
  return kRanges;
}

void unwatch(std::size_t entry) {
  if (entry >= kRanges) return;
  const std::scoped_lock lock(ranges_mutex);
  ranges[entry].end = 0;
  ranges[entry].begin = 0;
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path file) : path_(std::move(file)), watched_(kRanges) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer before it is refused.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) refuse(path_, errno);
  struct stat status {};
  const bool known = fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    release();
    throw Error({.what = S_ISDIR(status.st_mode) ? "this is a folder, not a file"
                                                 : "this is not a regular file",
                 .where = path_.string(),
                 .fix = "name a file on a disk"});
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor_, 0);
  const int reason = errno;
  if (memory == MAP_FAILED) {
    release();
    refuse(path_, reason);
  }
  bytes_ = {static_cast<const std::byte*>(memory), size};
  watched_ = watch(bytes_);
}

void MappedFile::release() noexcept {
  unwatch(watched_);
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (descriptor_ >= 0) close(descriptor_);
  bytes_ = {};
  descriptor_ = -1;
  watched_ = kRanges;
}

MappedFile::~MappedFile() { release(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      watched_(std::exchange(other.watched_, kRanges)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  bytes_ = std::exchange(other.bytes_, {});
  descriptor_ = std::exchange(other.descriptor_, -1);
  watched_ = std::exchange(other.watched_, kRanges);
  return *this;
}

void MappedFile::expect_whole() const {
  struct stat status {};
  const bool known = fstat(descriptor_, &status) == 0;
  const bool shrunk = known && std::cmp_less(status.st_size, bytes_.size());
  const bool lost = watched_ < kRanges && ranges[watched_].lost.load();
  if (!shrunk && !lost) return;
  throw Error(
      {.what = shrunk ? fmt::format("the file was cut short while it was being read: from "
                                    "{} bytes to {}",
                                    bytes_.size(), status.st_size)
                      : fmt::format("part of the file's {} bytes could not be read", bytes_.size()),
       .where = path_.string(),
       .fix = "restore the file and leave it alone while it is in use"});
}

std::string sampled_content(const MappedFile& file) {
  constexpr std::size_t kBlock = 4096, kBlocks = 64;
  const std::span<const std::byte> bytes = file.bytes();
  std::string sample = fmt::format("{} ", bytes.size());
  const auto add = [&](std::size_t begin, std::size_t count) {
    sample.append(reinterpret_cast<const char*>(bytes.data()) + begin, count);
  };
  if (bytes.size() <= kBlock * kBlocks) {
    add(0, bytes.size());
  } else {
    // In parts first, so that no product overflows.
    const std::size_t room = bytes.size() - kBlock, last = kBlocks - 1;
    for (std::size_t i = 0; i <= last; ++i) add(room / last * i + room % last * i / last, kBlock);
  }
  file.expect_whole();
  return fingerprint(sample);
}

}  // namespace braid::checkpoint
