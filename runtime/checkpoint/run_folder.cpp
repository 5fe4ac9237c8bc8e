#include "runtime/checkpoint/run_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>

#include "planner/core/error.h"
#include "runtime/checkpoint/manifest.h"

namespace braid::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::size_t kDigits = 8;

// The step that a folder's name is of; empty: it is none of ours.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + kDigits) return std::nullopt;
  std::int64_t step = 0;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [stopped, status] = std::from_chars(begin, end, step);
  if (status != std::errc() || stopped != end || step < 0) return std::nullopt;
  return step;
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& reason) {
  throw Error({.what = fmt::format("checkpoints cannot be kept here: {}", reason),
               .where = folder.string(),
               .fix = "name a folder that can be written, on a disk that all ranks share"});
}

// Every folder of a step with whether it is whole.
std::vector<std::pair<std::int64_t, bool>> steps_in(const fs::path& run) {
  std::vector<std::pair<std::int64_t, bool>> steps;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(run, code)) {
    const std::optional<std::int64_t> step = step_of(entry.path().filename().string());
    if (!step || entry.is_symlink(code) || !entry.is_directory(code)) continue;
    steps.emplace_back(*step, fs::exists(entry.path() / kManifestFile, code));
  }
  std::ranges::sort(steps);
  return steps;
}

}  // namespace

fs::path step_folder(const fs::path& run, std::int64_t step) {
  return run / fmt::format("{}{:0{}}", kPrefix, step, kDigits);
}

void make_run_folder(const fs::path& run) {
  std::error_code code;
  fs::create_directories(run, code);
  if (code) refuse(run, code.message());
  if (access(run.c_str(), W_OK) != 0) refuse(run, std::strerror(errno));
}

std::vector<std::int64_t> saved_steps(const fs::path& run) {
  std::vector<std::int64_t> saved;
  for (const auto& [step, whole] : steps_in(run))
    if (whole) saved.push_back(step);
  return saved;
}

void remove_unfinished(const fs::path& run) {
  for (const auto& [step, whole] : steps_in(run)) {
    std::error_code code;
    if (!whole) fs::remove_all(step_folder(run, step), code);
    if (code) refuse(step_folder(run, step), code.message());
  }
}

void remove_checkpoint(const fs::path& folder) {
  std::error_code code;
  fs::remove(folder / kManifestFile, code);
  if (!code) fs::remove_all(folder, code);
  if (code)
    throw Error({.what = fmt::format("an old checkpoint cannot be removed: {}", code.message()),
                 .where = folder.string(),
                 .fix = "remove it by hand"});
}

std::vector<std::int64_t> expired(const std::vector<std::int64_t>& steps, const Retention& keep) {
  std::vector<std::int64_t> gone;
  if (keep.last <= 0) return gone;
  for (std::int64_t i = 0; i < std::ssize(steps) - keep.last; ++i) {
    const std::int64_t step = steps[static_cast<std::size_t>(i)];
    if (keep.every <= 0 || step % keep.every != 0) gone.push_back(step);
  }
  return gone;
}

RunClaim::RunClaim(const fs::path& run) {
  // A lock of the folder itself, so that nothing is left behind and none outlives its process. File
  // systems without locks give no claim.
  descriptor_ = open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) refuse(run, std::strerror(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(descriptor_);
  throw Error({.what = "another run saves its checkpoints here",
               .where = run.string(),
               .fix = "choose another folder, or wait until that run has ended"});
}

RunClaim::~RunClaim() { close(descriptor_); }

}  // namespace braid::checkpoint
