#pragma once
// SIGINT (Ctrl-C), SIGTERM and SIGUSR1 (a batch system's time limit and the warning before it) as a
// request to end early.

#include <atomic>
#include <string>

namespace braid::cli {

// While one exists, the first of these signals only sets a flag that the verb asks; a second
// SIGINT ends the process at once, as without a handler. Later SIGTERMs and SIGUSR1s are ignored:
// launchers repeat them. A signal that was ignored when the program began (nohup, a script's
// background job) stays ignored. Objects may nest: the outermost installs the handlers, clears the
// flag, and restores the actions that it found. Create it before other threads start.
class Interrupt {
 public:
  // `notice`: a line for standard error when the first signal comes, of static storage; null: none.
  explicit Interrupt(const char* notice = nullptr);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool requested() { return flag().load(std::memory_order_relaxed); }
  static const std::atomic<bool>& flag();  // for libraries that poll
  static int signal();                     // the first that came; 0 before one
  static int status();                     // of a verb that it ended
};

// "SIGTERM"; the number where it has no name here.
std::string signal_name(int signal);
// Exit status of a program that a signal ended, as shells show it.
constexpr int signal_status(int signal) { return 128 + signal; }

}  // namespace braid::cli
