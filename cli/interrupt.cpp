#include "cli/interrupt.h"

#include <signal.h>  // sigaction is POSIX: <csignal> need not declare it
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace braid::cli {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
                  std::atomic<const char*>::is_always_lock_free,
              "a signal handler must not wait for a lock");

std::atomic<bool> requested_flag{false};
std::atomic<int> first_signal{0};
std::atomic<const char*> notice{nullptr};

int depth = 0;  // of nested Interrupts; changed by one thread
struct sigaction old_interrupt;
struct sigaction old_terminate;
struct sigaction old_user;

extern "C" void on_signal(int signal) {
  int none = 0;
  const bool first = first_signal.compare_exchange_strong(none, signal);
  requested_flag = true;
  const char* line = notice;
  if (!first || line == nullptr) return;
  const int error = errno;
  // A terminal that is gone is no reason not to end in order.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  errno = error;
}

void handle(int signal, int flags, struct sigaction& old) {
  sigaction(signal, nullptr, &old);
  if (old.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt(const char* line) {
  if (depth++ > 0) return;
  notice = line;
  first_signal = 0;
  requested_flag = false;
  handle(SIGINT, static_cast<int>(SA_RESETHAND), old_interrupt);
  handle(SIGTERM, 0, old_terminate);
  handle(SIGUSR1, 0, old_user);
}

Interrupt::~Interrupt() {
  if (--depth > 0) return;
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
  sigaction(SIGUSR1, &old_user, nullptr);
}

const std::atomic<bool>& Interrupt::flag() { return requested_flag; }

int Interrupt::signal() { return first_signal; }

int Interrupt::status() { return signal_status(first_signal); }

std::string signal_name(int signal) {
  if (signal == SIGINT) return "SIGINT";
  if (signal == SIGTERM) return "SIGTERM";
  if (signal == SIGUSR1) return "SIGUSR1";
  return "signal " + std::to_string(signal);
}

}  // namespace braid::cli
