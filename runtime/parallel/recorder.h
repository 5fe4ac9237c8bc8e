#pragma once
// Records what this rank does during a step: stretches of compute, and communication with the times
// at which compute stood still for it. On a GPU in the device's time: events are left in the
// streams and read at the end.
//
// Ranks may be threads, so what is recorded belongs to a thread. Where no recorder is at work the
// hooks here cost a test of a pointer.

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/comm/group.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/step_record.h"

namespace braid::parallel {

// What a communication is for.
struct Purpose {
  CommKind kind = CommKind::other;
  std::string_view operation;
  std::string_view layer = {};  // empty: the one that is being computed
  Role role = Role::together;
  int peer = -1;
  std::string label = {};
};

class Recorder {
 public:
  explicit Recorder(c10::Device device);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Between these two this thread is recorded. The first step's beginning is time zero: let the
  // ranks begin it together.
  void begin_step();
  void end_step();
  // Whether anybody records this thread.
  static bool at_work() { return current() != nullptr; }
  // Of all steps so far. Waits for the device.
  std::vector<StepRecord> steps();

 private:
  friend class ComputeScope;
  struct Compute;
  struct Comm;
  struct Step;
  class Watched;
  template <class Launch>
  friend comm::Handle communicate(const Purpose& purpose, Launch&& launch);

  static Recorder*& current();

  std::size_t begin_compute(Phase phase, const std::string& layer, int micro_batch);
  void end_compute(std::size_t span);
  std::shared_ptr<Comm> begin_comm(const Purpose& purpose);
  comm::Handle watch(const std::shared_ptr<Comm>& comm, comm::Handle handle);
  ops::Mark now() const { return ops::Mark::now(device_); }

  c10::Device device_;
  std::vector<Step> steps_;
};

// A stretch of compute, from here to the end of the scope. Scopes do not nest.
class ComputeScope {
 public:
  ComputeScope(Phase phase, const std::string& layer, int micro_batch = -1)
      : recorder_(Recorder::current()) {
    if (recorder_ != nullptr) span_ = recorder_->begin_compute(phase, layer, micro_batch);
  }
  ~ComputeScope() {
    if (recorder_ != nullptr) recorder_->end_compute(span_);
  }
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  Recorder* recorder_;
  std::size_t span_ = 0;
};

// Begins a communication: `launch` returns its handle. Every one that a step waits for goes through
// here.
template <class Launch>
comm::Handle communicate(const Purpose& purpose, Launch&& launch) {
  Recorder* recorder = Recorder::current();
  if (recorder == nullptr) return std::forward<Launch>(launch)();
  const auto comm = recorder->begin_comm(purpose);
  return recorder->watch(comm, std::forward<Launch>(launch)());
}

}  // namespace braid::parallel
