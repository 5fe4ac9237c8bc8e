#pragma once
// The folder of a run's checkpoints: step-00000500/, step-00001000/, … A checkpoint is whole when
// it has a checkpoint.json; what has none was not finished.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace braid::checkpoint {

std::filesystem::path step_folder(const std::filesystem::path& run, std::int64_t step);

// Throws an Error where the folder cannot be made or written.
void make_run_folder(const std::filesystem::path& run);

// Steps of the whole checkpoints, ascending.
std::vector<std::int64_t> saved_steps(const std::filesystem::path& run);

// Removes folders of steps without a checkpoint.json. Only of names that step_folder() gives.
void remove_unfinished(const std::filesystem::path& run);

// The checkpoint.json goes first, so that what is half removed is no checkpoint.
void remove_checkpoint(const std::filesystem::path& folder);

struct Retention {
  std::int64_t last = 0;   // the newest so many are kept; 0: all
  std::int64_t every = 0;  // and those whose step is a multiple of this; 0: none
};
// Steps to remove of those that were saved, ascending.
std::vector<std::int64_t> expired(const std::vector<std::int64_t>& steps, const Retention& keep);

// While one exists, no other process of this kind has the folder.
class RunClaim {
 public:
  // Throws an Error where another run saves there. The folder is there.
  explicit RunClaim(const std::filesystem::path& run);
  ~RunClaim();
  RunClaim(const RunClaim&) = delete;
  RunClaim& operator=(const RunClaim&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace braid::checkpoint
