#pragma once
// Ends a search that is asked to stop, wherever it is, and reports how far it has come.

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>

#include "planner/search/progress.h"

namespace braid {

// Thrown by Watch::look. Whoever catches it goes on with what is complete so far; what was under
// way proves nothing.
struct SearchStopped : std::exception {};

class Watch {
 public:
  struct Options {
    const std::atomic<bool>* stop = nullptr;
    std::optional<double> time_limit;                     // seconds from now on
    std::function<void(const SearchProgress&)> progress;  // of one thread at a time
  };
  explicit Watch(Options options);

  // Throws SearchStopped once the search is to end; from time to time reports progress. Cheap: any
  // loop that may take more than a few milliseconds calls it.
  void look() {
    if (due()) throw SearchStopped();
    if (options_.progress) report_in_time();
  }
  // Whether the search is to end; stays true.
  bool due() const { return ending() != Ending::complete; }
  Ending ending() const;

  void enter(std::string_view phase);  // of static storage
  void found(Seconds iteration);
  // No plan of the whole space is faster.
  void prove(Seconds bound);
  // What is entered, found and proven from now on is of other questions, and is not reported.
  void freeze();
  void report();

 private:
  using Clock = std::chrono::steady_clock;
  void report_in_time();

  Options options_;
  Clock::time_point begin_;
  std::atomic<Clock::duration> reported_{};  // since begin_
  std::mutex mutex_;                         // of what follows
  bool frozen_ = false;
  std::string_view phase_ = "begin";
  std::optional<Seconds> best_, bound_;
};

// Where none may be watching.
inline void look(Watch* watch) {
  if (watch != nullptr) watch->look();
}

// Whether `work` ran to its end rather than being stopped.
template <class Work>
bool unless_stopped(Work work) {
  try {
    work();
    return true;
  } catch (const SearchStopped&) {
    return false;
  }
}

}  // namespace braid
