#include "runtime/parallel/recorder.h"

#include <algorithm>
#include <map>
#include <optional>

#include "planner/core/error.h"

namespace braid::parallel {

using ops::Mark;

struct Recorder::Compute {
  ComputeSpan span;
  Mark begin;
  std::optional<Mark> end;
};

// Shared with the handle, which may outlive the recorder.
struct Recorder::Comm {
  CommSpan span;
  c10::Device device = c10::DeviceType::CPU;
  Mark begun, launched;
  std::optional<std::pair<Mark, Mark>> wait;  // on the compute stream: before and behind
  // Where the device's own streams carry it out: the stream, and when it was done.
  std::vector<std::pair<void*, Mark>> carried;
};

struct Recorder::Step {
  Mark begin;
  std::optional<Mark> end;
  std::vector<Compute> compute;
  std::vector<std::shared_ptr<Comm>> comm;
};

class Recorder::Watched final : public comm::Pending {
 public:
  Watched(comm::Handle handle, std::shared_ptr<Comm> comm)
      : handle_(std::move(handle)), comm_(std::move(comm)) {}

  void wait() override {
    Mark before = Mark::now(comm_->device);
    handle_.wait();
    comm_->wait.emplace(std::move(before), Mark::now(comm_->device));
  }
  std::span<void* const> streams() const override { return handle_.streams(); }

 private:
  comm::Handle handle_;
  std::shared_ptr<Comm> comm_;
};

Recorder*& Recorder::current() {
  thread_local Recorder* recorder = nullptr;
  return recorder;
}

Recorder::Recorder(c10::Device device) : device_(device) {}

Recorder::~Recorder() {
  if (current() == this) current() = nullptr;
}

void Recorder::begin_step() {
  internal_check(current() == nullptr, "one recorder at a time on a thread");
  steps_.push_back({.begin = now(), .end = {}, .compute = {}, .comm = {}});
  current() = this;
}

void Recorder::end_step() {
  internal_check(current() == this, "a step ends where it began");
  steps_.back().end = now();
  current() = nullptr;
}

std::size_t Recorder::begin_compute(Phase phase, const std::string& layer, int micro_batch) {
  std::vector<Compute>& spans = steps_.back().compute;
  internal_check(spans.empty() || spans.back().end.has_value(), "stretches of compute nest");
  spans.push_back(
      {{.phase = phase, .layer = layer, .micro_batch = micro_batch, .time = {}}, now(), {}});
  return spans.size() - 1;
}

void Recorder::end_compute(std::size_t span) { steps_.back().compute[span].end = now(); }

std::shared_ptr<Recorder::Comm> Recorder::begin_comm(const Purpose& purpose) {
  Step& step = steps_.back();
  auto comm = std::make_shared<Comm>();
  CommSpan& span = comm->span;
  span = {.kind = purpose.kind,
          .role = purpose.role,
          .layer = std::string(purpose.layer),
          .operation = std::string(purpose.operation),
          .label = purpose.label,
          .micro_batch = -1,
          .peer = purpose.peer,
          .time = {},
          .exposed = {}};
  if (!step.compute.empty() && !step.compute.back().end) {
    const ComputeSpan& around = step.compute.back().span;
    if (span.layer.empty()) span.layer = around.layer;
    span.micro_batch = around.micro_batch;
  }
  comm->device = device_;
  comm->begun = now();
  step.comm.push_back(comm);
  return comm;
}

comm::Handle Recorder::watch(const std::shared_ptr<Comm>& comm, comm::Handle handle) {
  comm->launched = now();
  if (handle.done()) return handle;
  for (void* stream : handle.streams())
    comm->carried.emplace_back(stream, Mark::on(device_, stream));
  return comm::Handle(std::make_unique<Watched>(std::move(handle), comm));
}

std::vector<StepRecord> Recorder::steps() {
  ops::synchronise(device_);
  std::vector<StepRecord> records;
  if (steps_.empty()) return records;
  const Mark& origin = steps_.front().begin;
  const auto at = [&](const Mark& mark) { return Seconds(mark.since(origin)); };
  std::map<void*, Seconds> free_at;  // streams do one thing after the other
  for (const Step& step : steps_) {
    internal_check(step.end.has_value(), "a step that was recorded has ended");
    StepRecord record{.time = {at(step.begin), at(*step.end)}, .compute = {}, .comm = {}};
    for (const Compute& compute : step.compute) {
      record.compute.push_back(compute.span);
      record.compute.back().time = {at(compute.begin), at(*compute.end)};
    }
    for (const auto& comm : step.comm) {
      CommSpan span = comm->span;
      span.time = {at(comm->begun), at(comm->launched)};
      std::optional<Interval> wait;
      if (comm->wait) wait = Interval{at(comm->wait->first), at(comm->wait->second)};
      if (comm->carried.empty()) {
        // The host itself begins and ends it.
        if (span.time.length() > Seconds(0)) span.exposed.push_back(span.time);
        if (wait) span.time.end = wait->end;
        if (wait && wait->length() > Seconds(0)) span.exposed.push_back(*wait);
      } else {
        Seconds queued, done;
        for (const auto& [stream, mark] : comm->carried) {
          queued = std::max(queued, free_at[stream]);
          free_at[stream] = at(mark);
          done = std::max(done, at(mark));
        }
        if (wait) wait->end = std::min(wait->end, done);
        // Behind others in its stream it is not under way yet, unless compute waits already.
        if (wait && wait->end > wait->begin) {
          queued = std::min(queued, wait->begin);
          span.exposed.push_back(*wait);
        }
        span.time = {std::min(std::max(span.time.begin, queued), done), done};
      }
      record.comm.push_back(std::move(span));
    }
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace braid::parallel
