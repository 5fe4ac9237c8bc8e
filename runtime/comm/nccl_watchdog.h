#pragma once
// Events, the store through which ranks find each other, and the thread that watches operations.
// Only nccl.cpp includes this.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/comm/bootstrap.h"
#include "runtime/comm/heartbeat.h"
#include "runtime/comm/progress.h"

namespace braid::comm::nccl {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::Store>;

inline void check_nccl(ncclResult_t status, ncclComm_t comm, std::string_view call) {
  if (status == ncclSuccess) return;
  throw CommError(
      {.what = fmt::format("{}: {}: {}", call, ncclGetErrorString(status), ncclGetLastError(comm)),
       .where = "backend nccl",
       .fix = "see what the other ranks report; NCCL_DEBUG=INFO says more"});
}

inline std::vector<std::uint8_t> to_bytes(std::string_view text) {
  return {text.begin(), text.end()};
}
inline std::string to_text(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// A connection to the store at the launch's address, which rank 0 serves if `serve`, with the keys
// of this launch alone. Each thread needs a connection of its own. A single rank has nobody to
// meet: its store is in its memory, and no port is bound.
inline Store connect(const Launch& launch, bool serve, std::chrono::milliseconds timeout) {
  if (launch.size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.port);
  options.isServer = serve && launch.rank == 0 && !launch.agent_serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        launch.run, c10::make_intrusive<c10d::TCPStore>(launch.address, options));
  } catch (const std::exception& error) {
    throw CommError(
        {.what = fmt::format("rank {} cannot reach rank 0: {}", launch.rank, error.what()),
         .where = fmt::format("{}:{}", launch.address, launch.port),
         .fix = "set MASTER_ADDR and MASTER_PORT to rank 0's host and a free port of it"});
  }
}

class Event {
 public:
  Event() { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { C10_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void block(cudaStream_t stream) const { C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0)); }
  void synchronize() const { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  cudaError_t query() const { return cudaEventQuery(event_); }

 private:
  cudaEvent_t event_ = nullptr;
};

// The two ends of an operation on the device; nothing while the host is still in NCCL.
struct Flight {
  std::shared_ptr<Event> ready;  // what is computed ahead of it
  std::shared_ptr<Event> done;
};

class Watchdog {
 public:
  struct Watched {
    Waiting waiting;
    Clock::time_point begun;
    Flight flight;
  };
  using Ticket = std::list<Watched>::iterator;

  Watchdog(const Launch& launch, std::chrono::milliseconds timeout, int device)
      : launch_(launch),
        timeout_(timeout),
        device_(device),
        store_(connect(launch, false, timeout)),
        heartbeat_(timeout + 4 * kAnswerTime, [this] { end_silent_process(); }),
        thread_([this] { run(); }) {}
  ~Watchdog() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From here on the operation has the timeout to end; `launched` says by which event it is seen.
  Ticket begin(Waiting waiting) {
    const std::scoped_lock lock(mutex_);
    log_.begin(waiting.channel, waiting.operation);
    return under_way_.insert(under_way_.end(), {std::move(waiting), Clock::now(), {}});
  }
  void launched(Ticket ticket, const Flight& flight) {
    const std::scoped_lock lock(mutex_);
    ticket->flight = flight;
  }

  void add(ncclComm_t comm) {
    const std::scoped_lock lock(mutex_);
    comms_.insert(comm);
  }
  void remove(ncclComm_t comm) {
    const std::scoped_lock lock(mutex_);
    comms_.erase(comm);
  }

 private:
  static constexpr std::chrono::milliseconds kPause{50}, kAlarmPause{1000};
  static constexpr std::chrono::milliseconds kAnswerTime{5000};

  static std::string log_key(int rank) { return fmt::format("braid/log/{}", rank); }

  void run() {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device_));
    auto next_alarm_check = Clock::now();
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      heartbeat_.beat();
      check_operations(lock);
      if (Clock::now() >= next_alarm_check) {
        answer_alarm(lock);
        next_alarm_check = Clock::now() + kAlarmPause;
      }
      changed_.wait_for(lock, kPause, [this] { return stopping_; });
    }
  }

  void check_operations(std::unique_lock<std::mutex>& lock) {
    for (const ncclComm_t comm : comms_) {
      ncclResult_t status = ncclSuccess;
      ncclCommGetAsyncError(comm, &status);
      if (status != ncclSuccess && status != ncclInProgress) {
        end_process(fmt::format("rank {}: NCCL: {}: {}\n", launch_.rank, ncclGetErrorString(status),
                                ncclGetLastError(comm)),
                    lock);
      }
    }
    const auto now = Clock::now();
    for (auto watched = under_way_.begin(); watched != under_way_.end();) {
      const auto& done = watched->flight.done;
      const cudaError_t status = done ? done->query() : cudaErrorNotReady;
      if (status == cudaSuccess) {
        watched = under_way_.erase(watched);
        continue;
      }
      if (status != cudaErrorNotReady) {
        end_process(fmt::format("rank {}: CUDA: {}, noticed in {}\n", launch_.rank,
                                cudaGetErrorString(status), describe(watched->waiting.operation)),
                    lock);
      }
      // A copy, since it may be gone as soon as others have the lock.
      if (now - watched->begun > timeout_) report(Waiting(watched->waiting), lock);
      ++watched;
    }
  }

  // The first operation that has not ended, and whether the device has come to it: all of a step
  // may have been launched long ago.
  void note_device() {
    for (const Watched& watched : under_way_) {
      const auto& [ready, done] = watched.flight;
      if (!done || done->query() != cudaErrorNotReady) continue;
      const std::string operation = describe(watched.waiting.operation);
      log_.device_is(ready->query() == cudaErrorNotReady
                         ? fmt::format("is still at what it computes ahead of {}", operation)
                         : fmt::format("waits in {}", operation));
      return;
    }
    log_.device_is("has ended all that was launched");
  }

  // A rank that waits in vain has asked; this one may be busy with something else altogether.
  void answer_alarm(std::unique_lock<std::mutex>& lock) {
    if (answered_) return;
    note_device();
    const std::string text = log_.to_text();
    lock.unlock();
    try {
      if (store_->check({"braid/alarm"})) {
        store_->set(log_key(launch_.rank), to_bytes(text));
        answered_ = true;
      }
    } catch (const std::exception&) {
      answered_ = true;  // rank 0 has ended, and the store with it: there is nobody to answer
    }
    lock.lock();
  }

  std::map<int, ProgressLog> ask(const std::vector<int>& ranks) {
    std::map<int, ProgressLog> logs;
    const auto deadline = Clock::now() + kAnswerTime;
    try {
      store_->set("braid/alarm", to_bytes("1"));
      while (Clock::now() < deadline && logs.size() < ranks.size()) {
        for (const int rank : ranks) {
          if (logs.contains(rank) || !store_->check({log_key(rank)})) continue;
          logs.emplace(rank, ProgressLog::from_text(to_text(store_->get(log_key(rank)))));
        }
        std::this_thread::sleep_for(kPause);
      }
    } catch (const std::exception&) {
      return logs;  // without rank 0 there is no store: what has been read must do
    }
    return logs;
  }

  [[noreturn]] void report(const Waiting& waiting, std::unique_lock<std::mutex>& lock) {
    note_device();
    const std::string text = log_.to_text();
    lock.unlock();
    try {
      store_->set(log_key(launch_.rank), to_bytes(text));
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", launch_.rank, error.what());
    }
    const CommError error(diagnosis(waiting, ask(waiting.members), timeout_));
    lock.lock();
    end_process(fmt::format("braid: {}\n", error.what()), lock);
  }

  [[noreturn]] void end_process(const std::string& message, std::unique_lock<std::mutex>& lock) {
    fmt::print(stderr, "{}", message);
    std::fflush(nullptr);
    const std::set<ncclComm_t> comms = comms_;
    lock.unlock();
    // Aborting may wait for a driver that is stuck itself: it gets a moment, in a thread that dies
    // with the process.
    std::thread([comms] {
      for (const ncclComm_t comm : comms) ncclCommAbort(comm);
    }).detach();
    // Rank 0 takes the store with it: the others need time to read it.
    std::this_thread::sleep_for(launch_.rank == 0 ? kAnswerTime : kAlarmPause);
    std::_Exit(1);
  }

  // The thread itself is caught: in a standstill the driver may not even say what has happened.
  [[noreturn]] void end_silent_process() const {
    fmt::print(stderr,
               "braid: rank {}: the GPU's driver has not answered for {} ms; operations of several "
               "ranks may be waiting for each other\n",
               launch_.rank, (timeout_ + 4 * kAnswerTime).count());
    std::fflush(nullptr);
    std::_Exit(1);
  }

  const Launch launch_;
  const std::chrono::milliseconds timeout_;
  const int device_;
  Store store_;
  Heartbeat heartbeat_;
  bool answered_ = false;  // the thread's own
  std::mutex mutex_;       // of everything below
  std::condition_variable changed_;
  bool stopping_ = false;
  std::list<Watched> under_way_;
  std::set<ncclComm_t> comms_;
  ProgressLog log_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace braid::comm::nccl
