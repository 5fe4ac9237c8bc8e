#pragma once
// How far a run is, for people.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "planner/core/units.h"
#include "runtime/train/metrics.h"

namespace braid::train {

// step  121/1000  loss 3.2145  |g| 0.87  lr 2.9e-04  41.2k tok/s  MFU 48.1%
//   9.8 GiB of 10.1 predicted  eta 12m04s          (all of it on one line)
std::string progress_line(const StepMetrics& metrics, std::int64_t total_steps,
                          std::optional<Seconds> left);

std::string format_duration(Seconds time);  // 45s, 12m04s, 3h05m, 2d03h
std::string format_rate(double rate);       // 850, 41.2k, 1.3M

// Seconds a step, smoothed: recent steps count most. The first step, which also allocates and
// compiles, counts only until there is a second.
class StepTime {
 public:
  void add(Seconds step);
  std::optional<Seconds> mean() const;

 private:
  std::int64_t steps_ = 0;
  double sum_ = 0, weight_ = 0;
};

struct ProgressOptions {
  std::int64_t total_steps = 0;
  // On a terminal one line is written over and over; in a log each is a line of its own.
  bool terminal = false;
  // A line at least every so many seconds of training, and every so many steps (0: steps alone say
  // nothing). The first and the last step always have one.
  Seconds every{10};
  std::int64_t every_steps = 0;
};

// Time is what the steps say they took, so that this needs no clock.
class Progress {
 public:
  Progress(std::FILE* out, const ProgressOptions& options) : out_(out), options_(options) {}
  // Ends a line that is still being written over.
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepMetrics& metrics);
  void finish();

 private:
  bool due(const StepMetrics& metrics) const;

  std::FILE* out_;
  ProgressOptions options_;
  StepTime time_;
  Seconds since_line_;
  bool any_line_ = false, open_line_ = false;
};

}  // namespace braid::train
