#include "runtime/train/record_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace braid::train {

namespace {

// A lock of the system's, so that none outlives a run that was killed. File systems without locks
// give no claim.
int claim(const std::filesystem::path& file) {
  const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
    return descriptor;
  close(descriptor);
  throw Error({.what = "another run is writing this file",
               .where = file.string(),
               .fix = "choose another folder, or wait until that run has ended"});
}

}  // namespace

RecordFile::RecordFile(const std::filesystem::path& file) : file_(file), lock_(claim(file)) {
  std::error_code code;
  const std::uintmax_t bytes = std::filesystem::file_size(file, code);
  if (!code) size_ = static_cast<std::int64_t>(bytes);
}

RecordFile::~RecordFile() {
  if (lock_ >= 0) close(lock_);
}

void RecordFile::cut(std::int64_t size) {
  file_.cut(size);
  size_ = size;
}

void RecordFile::append(std::string_view record) {
  try {
    file_.append(record);
    size_ += static_cast<std::int64_t>(record.size());
    return;
  } catch (const Error& error) {
    if (!trouble_) trouble_ = error.mistake();
  }
  ++missing_;
  try {
    file_.cut(size_);
  } catch (const Error&) {  // a device has no end to cut back to
    return;
  }
}

}  // namespace braid::train
