#pragma once
// SIGINT (Ctrl-C) and SIGTERM (a batch system's time limit) as a request to end early.

#include <atomic>

namespace braid::cli {

// While one exists, the first SIGINT or SIGTERM only sets a flag that the verb asks; a second
// SIGINT ends the process at once, as without a handler. Later SIGTERMs are ignored: launchers
// repeat them. A signal that was ignored when the program began (nohup, a script's background job)
// stays ignored. Objects may nest: the outermost installs the handlers, clears the flag, and
// restores the actions that it found. Create it before other threads start.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool requested() { return flag().load(std::memory_order_relaxed); }
  static const std::atomic<bool>& flag();  // for libraries that poll
  static int signal();                     // SIGINT or SIGTERM, the first that came; 0 before one
  // Exit status of a verb that a signal ended: 128 + signal, as shells show it.
  static int status();
};

}  // namespace braid::cli
