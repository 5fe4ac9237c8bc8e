#include "runtime/train/append_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "planner/core/error.h"

namespace braid::train {

AppendFile::AppendFile(std::filesystem::path file) : path_(std::move(file)) {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail(errno);
}

AppendFile::~AppendFile() { close(descriptor_); }

std::string AppendFile::read_all() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail(errno);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count =
        pread(descriptor_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    if (count == 0) break;  // somebody cut it meanwhile
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

void AppendFile::cut(std::int64_t size) {
  if (ftruncate(descriptor_, size) != 0) fail(errno);
}

void AppendFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void AppendFile::fail(int reason) const {
  throw Error({.what = fmt::format("cannot write the file: {}", std::strerror(reason)),
               .where = path_.string(),
               .fix = "check that the folder exists, is writable and has room"});
}

}  // namespace braid::train
