#pragma once
// Saves a run while it trains: a copy in host memory, overlapped with the next step, and a thread
// that writes it.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/units.h"
#include "runtime/checkpoint/run_folder.h"
#include "runtime/checkpoint/shard.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/comm/group.h"

namespace braid::checkpoint {

// How a save ended; the same on all ranks but for `copy` and `write`.
struct Saved {
  std::int64_t step = 0;
  std::int64_t bytes = 0;           // of all files
  Seconds copy, write;              // on this rank: to host memory, and from there to the disk
  std::optional<Mistake> trouble;   // why there is none; the checkpoints before it are whole
  std::optional<Mistake> leftover;  // on rank 0: an expired checkpoint that could not be removed
};

class Saver {
 public:
  struct Options {
    std::filesystem::path run;
    Retention keep;
  };

  // Every rank of the world makes one, with its share of the model. Takes the host memory.
  Saver(Options options, models::RankModel& rank_model, const Model& model, comm::Group& world,
        c10::Device device);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Begins to save the state after the last step. No other save may be under way. `manifest` says
  // all but the files.
  void begin(Manifest manifest);
  // To precede every change of weights and moments; see HostCopy.
  void hold_back_changes() { snapshot_.hold_back_changes(); }
  bool under_way() const { return writing_.valid(); }
  std::int64_t step() const { return manifest_.step; }  // of the last save that began

  // Collective while a save is under way: empty until all ranks have written.
  std::optional<Saved> poll();
  // Waits for that. Collective; a save must be under way.
  Saved finish();

 private:
  struct Written {
    std::vector<StoredFile> files;
    std::optional<Mistake> trouble;
    Seconds copy, write;
  };
  using Clock = std::chrono::steady_clock;
  Written write(Clock::time_point begin);
  Saved conclude();
  std::optional<Mistake> commit(Written& written);
  std::optional<Mistake> remove_expired() const;
  // The first rank's trouble, on all ranks.
  std::optional<Mistake> agree(const std::optional<Mistake>& mine);

  Options options_;
  comm::Group* world_;
  c10::Device device_;
  Snapshot snapshot_;
  Shard shard_;
  Manifest manifest_;
  std::filesystem::path folder_;  // of the save under way
  std::future<Written> writing_;
};

}  // namespace braid::checkpoint
