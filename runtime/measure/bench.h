#pragma once
// Measures with all ranks at once: a device shares memory, links and power with its neighbours, and
// in training none of them is idle.

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/group.h"
#include "runtime/measure/journal.h"

namespace braid::measure {

struct Timing {
  double seconds = 0;  // of one call: the median of the repetitions
  double spread = 0;   // the middle half of them, against the median
};
// The median and the spread of some repetitions; at least one.
Timing robust(std::vector<double> seconds);

struct BenchProgress {
  int done = 0, total = 0;  // measurements
  std::string name;         // the one that begins
};

struct BenchOptions {
  int warm_up = 2;            // calls ahead of the first one that counts
  int least_repetitions = 3;  // even where they take long
  int most_repetitions = 20;
  double enough_seconds = 0.15;                              // of repetitions
  std::optional<std::chrono::seconds> limit = std::nullopt;  // of the whole run
  std::function<void(const BenchProgress&)> progress = {};   // on rank 0
  // The signal that asks this rank to end after the measurement under way; 0: none. Empty: never.
  std::function<int()> stop_signal = {};
};

class Bench {
 public:
  // `journal` counts on rank 0; the others learn from it. Collective.
  Bench(comm::Group& world, c10::Device device, Journal journal, BenchOptions options);

  comm::Group& world() const { return world_; }
  c10::Device device() const { return device_; }
  bool first() const { return world_.rank() == 0; }

  // How many run() calls are to come; for the progress alone.
  void expect(int measurements) { progress_.total += measurements; }

  // One measurement: what the journal has, or what `work` finds now, the mean over all ranks.
  // Nothing when the time limit has passed. Every rank returns the same. Collective; `work` may
  // call time() and every collective operation. Throws Stopped when a rank was asked to end; the
  // measurement is in the journal by then.
  std::optional<std::vector<double>> run(const std::string& key,
                                         const std::function<std::vector<double>()>& work);

  // Seconds of one call, on this rank. All ranks begin each repetition together. Inside run(),
  // whose spread becomes the largest of its timings'. Collective.
  double time(const std::function<void()>& body);
  // The same for a body that times parts of itself: their seconds, each a median.
  std::vector<double> time_parts(const std::function<std::vector<double>()>& body);

  Noise noise() const;
  int skipped() const { return skipped_; }  // measurements that the limit left out
  Journal& journal() { return journal_; }

 private:
  bool out_of_time();
  [[noreturn]] void stop();
  std::vector<double> mean_over_ranks(const std::vector<double>& mine);

  comm::Group& world_;
  c10::Device device_;
  Journal journal_;
  BenchOptions options_;
  BenchProgress progress_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double spread_ = 0;  // of the run() under way
  std::vector<std::pair<double, std::string>> spreads_;
  int skipped_ = 0;
};

// The text of rank 0, on all ranks. Collective.
std::string broadcast_text(const std::string& text, comm::Group& world, c10::Device device);

}  // namespace braid::measure
