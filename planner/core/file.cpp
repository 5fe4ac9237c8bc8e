#include "planner/core/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "planner/core/error.h"

namespace braid {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStandardStream = "-";
constexpr mode_t kNewFile = 0666;                      // less the umask
constexpr std::size_t kProbe = std::size_t{64} << 10;  // bytes; a plan seldom takes more
constexpr int kMaxLinks = 40;                          // as the kernel follows

[[noreturn]] void cannot_write(const fs::path& file, const std::string& reason) {
  throw Error({.what = fmt::format("cannot write the file: {}", reason),
               .where = file.string(),
               .fix = "check that the folder exists, is writable and has room"});
}
[[noreturn]] void cannot_write(const fs::path& file, int reason) {
  cannot_write(file, std::strerror(reason));
}

[[noreturn]] void cannot_read(const fs::path& file, int reason) {
  throw Error({.what = fmt::format("cannot read the file: {}", std::strerror(reason)),
               .where = file.string(),
               .fix = "check the path and its permissions"});
}

[[noreturn]] void too_large(const fs::path& file) {
  throw Error({.what = fmt::format("the file is longer than {} MiB", kLargestInput >> 20),
               .where = file.string(),
               .fix = "check that this is the file you mean"});
}

void write_all(int descriptor, std::string_view bytes, const fs::path& file) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_write(file, errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// Follows symbolic links. Nothing where there is no such file; an Error where it cannot be told.
std::optional<struct stat> status_of(const fs::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) == 0) return status;
  if (errno != ENOENT) cannot_write(file, errno);
  return std::nullopt;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The descriptor of a standard stream that the name stands for, else -1. Writing through it keeps
// the place of a stream that the shell has redirected to a file.
int standard_stream(const fs::path& file) {
  if (file == kStandardStream) return STDOUT_FILENO;
  struct stat named {
  }, stream{};
  if (stat(file.c_str(), &named) != 0) return -1;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (fstat(descriptor, &stream) == 0 && same_file(named, stream)) return descriptor;
  return -1;
}

// What commit() replaces: the end of a chain of symbolic links, which need not exist.
fs::path link_target(const fs::path& file) {
  fs::path target = file;
  std::error_code code;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, code)); ++links) {
    if (links == kMaxLinks) cannot_write(file, ELOOP);
    const fs::path next = fs::read_symlink(target, code);
    if (code) cannot_write(file, code.message());
    target = target.parent_path() / next;  // an absolute `next` replaces the folder
  }
  return target;
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

void refuse_kind(mode_t mode, const fs::path& file) {
  const auto refuse = [&](const char* what) {
    throw Error({.what = what, .where = file.string(), .fix = "name a file on a disk"});
  };
  if (S_ISDIR(mode))
    throw Error({.what = "this is a folder, not a file",
                 .where = file.string(),
                 .fix = "name a file inside it"});
  if (S_ISBLK(mode)) refuse("this is a disk, not a file");
  if (S_ISSOCK(mode)) refuse("this is a socket, not a file");
}

void expect_folder(const fs::path& target, const fs::path& file) {
  std::error_code code;
  const fs::path folder = folder_of(target);
  if (fs::is_directory(folder, code)) return;
  throw Error({.what = fs::exists(folder, code)
                           ? fmt::format("'{}' is not a folder", folder.string())
                           : fmt::format("the folder '{}' does not exist", folder.string()),
               .where = file.string(),
               .fix = "create it first"});
}

// In the folder of the target, so that a rename suffices; nobody can foresee it.
fs::path temporary_name(const fs::path& target) {
  std::random_device random;
  const std::uint64_t number = std::uint64_t{random()} << 32 | random();
  return folder_of(target) / fmt::format(".braid-{:016x}.tmp", number);
}

fs::path name_of_descriptor(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

// A file without a name, which is gone when the process is. -1 where the file system has none.
int open_unnamed(const fs::path& folder) {
#ifdef O_TMPFILE
  const int descriptor = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kNewFile);
  if (descriptor < 0 || access(name_of_descriptor(descriptor).c_str(), F_OK) == 0)
    return descriptor;
  close(descriptor);
#endif
  return -1;
}

// Makes a new name outlast a loss of power. File systems that cannot do so keep the file anyway.
void sync_folder(const fs::path& target) {
  const Descriptor folder(open(folder_of(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() >= 0) fsync(folder.number());
}

}  // namespace

std::string read_text(const fs::path& file) {
  const Descriptor in(file == kStandardStream ? dup(STDIN_FILENO)
                                              : open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (in.number() < 0 || fstat(in.number(), &status) != 0) cannot_read(file, errno);
  refuse_kind(status.st_mode, file);
  if (S_ISREG(status.st_mode) && status.st_size > kLargestInput) too_large(file);
  std::string text;
  std::array<char, std::size_t{64} << 10> block{};
  while (true) {
    const ssize_t count = read(in.number(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_read(file, errno);
    if (count == 0) return text;
    if (std::cmp_greater(text.size() + static_cast<std::size_t>(count), kLargestInput))
      too_large(file);
    text.append(block.data(), static_cast<std::size_t>(count));
  }
}

void write_text(const fs::path& file, std::string_view text) {
  OutputFile out(file);
  out.write(text);
  out.commit();
}

bool is_standard_output(const fs::path& file) { return standard_stream(file) == STDOUT_FILENO; }

bool keeps_what_is_written(const fs::path& file) {
  const auto status = status_of(file);
  return standard_stream(file) < 0 && (!status || S_ISREG(status->st_mode));
}

void expect_writable(const fs::path& file) {
  const auto status = status_of(file);
  if (status && S_ISFIFO(status->st_mode)) {
    if (access(file.c_str(), W_OK) != 0) cannot_write(file, errno);
    return;
  }
  OutputFile(file).probe();
}

OutputFile::OutputFile(fs::path file) : file_(std::move(file)) {
  if (const int stream = standard_stream(file_); stream >= 0) {
    descriptor_ = fcntl(stream, F_DUPFD_CLOEXEC, 0);
    if (descriptor_ < 0) cannot_write(file_, errno);
    return;
  }
  const auto status = status_of(file_);
  if (status) refuse_kind(status->st_mode, file_);
  if (status && !S_ISREG(status->st_mode)) {
    descriptor_ = open(file_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) cannot_write(file_, errno);
    return;
  }
  // A rename would replace a file that is marked read-only, too.
  if (status && access(file_.c_str(), W_OK) != 0) cannot_write(file_, errno);
  target_ = link_target(file_);
  if (!target_.has_filename()) cannot_write(file_, EISDIR);
  expect_folder(target_, file_);
  open_temporary();
  if (!status) return;
  // Only root may give a file away; without that it becomes the writer's own.
  static_cast<void>(fchown(descriptor_, status->st_uid, status->st_gid) == 0);
  static_cast<void>(fchmod(descriptor_, status->st_mode & 07777) == 0);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::open_temporary() {
  descriptor_ = open_unnamed(folder_of(target_));
  if (descriptor_ >= 0) return;
  const fs::path name = temporary_name(target_);
  descriptor_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kNewFile);
  if (descriptor_ < 0) cannot_write(file_, errno);
  temporary_ = name;
}

void OutputFile::write(std::string_view bytes) { write_all(descriptor_, bytes, file_); }

void OutputFile::probe() {
  // A device that is full refuses even no bytes.
  if (target_.empty()) {
    if (::write(descriptor_, "", 0) < 0) cannot_write(file_, errno);
    return;
  }
  write(std::string(kProbe, ' '));
  if (fsync(descriptor_) != 0) cannot_write(file_, errno);
}

void OutputFile::commit() {
  if (target_.empty()) {
    if (close(std::exchange(descriptor_, -1)) != 0) cannot_write(file_, errno);
    return;
  }
  if (fsync(descriptor_) != 0) cannot_write(file_, errno);
  if (temporary_.empty()) {
    const fs::path name = temporary_name(target_);
    if (linkat(AT_FDCWD, name_of_descriptor(descriptor_).c_str(), AT_FDCWD, name.c_str(),
               AT_SYMLINK_FOLLOW) != 0)
      cannot_write(file_, errno);
    temporary_ = name;
  }
  if (close(std::exchange(descriptor_, -1)) != 0) cannot_write(file_, errno);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) cannot_write(file_, errno);
  temporary_.clear();
  sync_folder(target_);
}

AppendFile::AppendFile(fs::path file) : file_(std::move(file)) {
  if (const auto status = status_of(file_)) refuse_kind(status->st_mode, file_);
  descriptor_ = open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kNewFile);
  if (descriptor_ < 0) cannot_write(file_, errno);
}

AppendFile::~AppendFile() { close(descriptor_); }

std::string AppendFile::read_all() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) cannot_read(file_, errno);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count =
        pread(descriptor_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_read(file_, errno);
    if (count == 0) break;  // cut meanwhile
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

void AppendFile::cut(std::int64_t size) {
  if (ftruncate(descriptor_, size) != 0) cannot_write(file_, errno);
}

void AppendFile::append(std::string_view bytes) { write_all(descriptor_, bytes, file_); }

}  // namespace braid
