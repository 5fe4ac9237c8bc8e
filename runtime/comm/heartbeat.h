#pragma once
// Watches a thread that may be caught in a call which never returns: the thread says that it is
// alive, and when it has not for too long, somebody else is told. Holds no lock of the thread's.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace braid::comm {

class Heartbeat {
 public:
  // `silent` is called once, in a thread of its own, when no beat has come for `longest`.
  Heartbeat(std::chrono::milliseconds longest, std::function<void()> silent)
      : longest_(longest), silent_(std::move(silent)), thread_([this] { listen(); }) {}
  ~Heartbeat() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  void beat() { last_ = Clock::now().time_since_epoch(); }

 private:
  using Clock = std::chrono::steady_clock;

  void listen() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, longest_ / 8, [this] { return stopping_; })) {
      if (Clock::now().time_since_epoch() - last_.load() < longest_) continue;
      silent_();
      return;
    }
  }

  const std::chrono::milliseconds longest_;
  const std::function<void()> silent_;
  std::atomic<Clock::duration> last_ = Clock::now().time_since_epoch();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace braid::comm
