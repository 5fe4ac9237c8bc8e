#pragma once
// What the verbs that search have in common: when a search ends, and the line that says how far it
// has come.

#include <chrono>
#include <mutex>
#include <string>

#include "planner/search/progress.h"

namespace braid {
struct SearchOptions;
}

namespace braid::cli {

class Options;

// Flags as they were typed.
struct SearchEndFlags {
  std::string limit, gap;
};
void add_search_end_flags(const Options& option, SearchEndFlags& flags);
void read_search_end(const SearchEndFlags& flags, SearchOptions& options);

// A line on standard error for whoever waits: redrawn on a terminal, every two seconds in a log.
class ProgressLine {
 public:
  ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  void show(const SearchProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  // Silent for a first second: most searches end before it is over.
  std::chrono::milliseconds pause() const;

  bool terminal_;
  bool shown_ = false;
  std::mutex mutex_;
  Clock::time_point last_ = Clock::now();
};

// "12 s: search configurations, best 54.55 s an iteration, at most 3.1% above the optimum"
std::string progress_text(const SearchProgress& progress);

}  // namespace braid::cli
