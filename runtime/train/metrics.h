#pragma once
// What a run says about each of its steps: a line of JSON in metrics.jsonl and scalars in an event
// file of TensorBoard's.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/units.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/train/event_file.h"
#include "runtime/train/record_file.h"

namespace braid::train {

struct StepMetrics {
  std::int64_t step = 0;  // from 0
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  // of this step, over all ranks
  Seconds seconds;
  std::optional<Seconds> launch = {};             // until the host had handed it to the device
  std::optional<double> mfu = {};                 // a fraction
  std::optional<Bytes> allocated = {};            // the fullest rank's peak
  std::optional<Bytes> predicted = {};            // by the plan, for the fullest rank
  std::optional<Seconds> predicted_seconds = {};  // by the plan, for one step
  std::vector<checkpoint::Saved> saved = {};      // saves that ended after this step

  double tokens_per_second() const {
    return seconds.value() > 0 ? static_cast<double>(tokens) / seconds.value() : 0;
  }
};

// Model FLOPs utilisation (Chowdhery et al., 2022): the FLOPs that the model's mathematics need for
// one step, over what the devices could have done meanwhile:
//
//   training_flops(model) × samples of the step / (seconds × devices × peak FLOP/s)
//
// Recomputation is no useful work and does not count. `step_flops` is the product above the line.
// Without a known peak (or without time) there is no such number.
std::optional<double> model_flops_utilisation(Flops step_flops, Seconds seconds, int devices,
                                              std::optional<FlopsPerSecond> peak);

// One line of metrics.jsonl, without its end. JSON has no NaN and no infinity: they become null.
std::string json_line(const StepMetrics& metrics);

struct MetricsOptions {
  std::filesystem::path folder;  // made when absent
  // A new run's folder must not hold metrics yet. Of a run that resumes, lines of the first step
  // and later ones, which a crash undid, are cut off, as is a torn line.
  bool resumes = false;
  std::int64_t first_step = 0;
  bool tensorboard = true;
};

// Throws an Error where the folder holds the metrics of an earlier run: what a MetricsWriter of a
// new run would throw, before there is one.
void expect_new_run(const std::filesystem::path& folder);
// Throws Error unless the folder, or what of it is there already, can be written to.
void expect_writable_folder(const std::filesystem::path& folder);

class MetricsWriter {
 public:
  // Throws an Error where a file cannot be written, what is there cannot be continued, or another
  // run that has not ended writes into the folder.
  explicit MetricsWriter(const MetricsOptions& options);
  // A file that cannot be written any more (RecordFile) does not end the run. Returns the troubles
  // of files for which this was the first time.
  std::vector<Mistake> write(const StepMetrics& metrics);
  // One for each file that lacks steps.
  std::vector<Mistake> incomplete() const;

 private:
  std::vector<const RecordFile*> files() const;

  RecordFile lines_;
  std::optional<EventFile> events_;
};

inline constexpr const char* kMetricsFile = "metrics.jsonl";

}  // namespace braid::train
