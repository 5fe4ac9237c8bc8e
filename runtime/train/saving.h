#pragma once
// When a run saves its state, and where it goes on.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/units.h"
#include "planner/plan/plan.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/comm/group.h"

namespace braid::train {

struct SaveOptions {
  std::filesystem::path folder;  // of the run's checkpoints; empty: nothing is saved
  // A save is due after so many steps, or after so much time, whichever comes first; 0: not for
  // that reason. The last step is always saved.
  std::int64_t every_steps = 0;
  Seconds every;
  checkpoint::Retention keep;
  bool resume = false;         // go on from the newest checkpoint in the folder, if there is one
  bool stop_on_error = false;  // a save that fails ends the run

  bool saves() const { return !folder.empty(); }
};

// Where a run stands after a number of steps.
struct RunPosition {
  std::int64_t step = 0;
  std::int64_t samples = 0;  // that the steps consumed
};

// What a checkpoint says of the run that wrote it, besides position and files.
struct RunFacts {
  std::string program;
  std::vector<checkpoint::Setting> identity, settings;
};

// Throws an Error on the ranks that call it where a run that does not go on would mix its
// checkpoints with those of another, or the folder cannot be written. For rank 0, before long work.
void expect_savable(const SaveOptions& options);

// The checkpoint from which a run goes on; empty: it begins. Rank 0 looks, and removes what was not
// finished; the other ranks take its word. Collective.
std::optional<std::filesystem::path> newest_checkpoint(const SaveOptions& options,
                                                       comm::Group& world, c10::Device device);

// Throws an Error that names what differs, unless the checkpoint is one of this run. Returns
// changed settings, a line each: "learning_rate.peak: 0.0003 when it was saved, 0.0001 now".
std::vector<std::string> expect_same_run(const checkpoint::Manifest& manifest, const Model& model,
                                         const RunFacts& facts, const std::string& where);

// Asks after every step whether a save is due, has ended or has to wait. The same calls on all
// ranks.
class Saving {
 public:
  // How a save ended, or that one could not begin; on rank 0 only.
  using Tell = std::function<void(const checkpoint::Saved&)>;

  Saving(const SaveOptions& options, const Plan& plan, RunFacts facts, RunPosition begin,
         models::RankModel& rank_model, comm::Group& world, c10::Device device, Tell tell);

  // For WorkerOptions: ahead of each change of weights and moments, and whether this rank's clock
  // says that a save is due.
  void hold_back_changes();
  bool is_time() const;

  // After a step, which left the run at `position`. `asked`: some rank's clock says that a save is
  // due; `last`: no step follows. Returns the saves that ended.
  std::vector<checkpoint::Saved> after_step(RunPosition position, bool asked, bool last);

  Seconds stall() const { return stall_; }  // time of this rank's training that saves took

 private:
  void begin(RunPosition position);
  void add(checkpoint::Saved saved, std::vector<checkpoint::Saved>& ended);

  SaveOptions options_;
  const Plan* plan_;
  RunFacts facts_;
  comm::Group* world_;
  Tell tell_;
  checkpoint::Saver saver_;
  std::int64_t last_begun_;  // the step of the last save
  std::chrono::steady_clock::time_point last_time_;
  Seconds stall_;
};

}  // namespace braid::train
