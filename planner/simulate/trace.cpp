#include "planner/simulate/trace.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/json.h"

namespace braid {
namespace {

constexpr int kComputeThread = 0;
constexpr int kReceiveThread = 1;
constexpr int kFirstSendThread = 2;
constexpr double kMicroseconds = 1e6;  // the format's unit of time

std::string label(const Op& op, int chunks) {
  const auto unit = [&](const char* prefix) {
    return chunks == 1 ? fmt::format("{}{}", prefix, op.micro_batch)
                       : fmt::format("{}{} chunk {}", prefix, op.micro_batch, op.chunk);
  };
  switch (op.kind) {
    case OpKind::forward:
      return unit("F");
    case OpKind::backward:
    case OpKind::backward_input:
      return unit("B");
    case OpKind::backward_weight:
      return unit("W");
    case OpKind::send_activation:
      return unit("send act ");
    case OpKind::receive_activation:
      return unit("receive act ");
    case OpKind::send_gradient:
      return unit("send grad ");
    case OpKind::receive_gradient:
      return unit("receive grad ");
    case OpKind::reduce:
    case OpKind::update:
      return name_of(op.kind);
  }
  internal_failure("an operation without a label", std::source_location::current());
}

bool is_send(OpKind kind) {
  return kind == OpKind::send_activation || kind == OpKind::send_gradient;
}
bool is_receive(OpKind kind) {
  return kind == OpKind::receive_activation || kind == OpKind::receive_gradient;
}

// Viewers nest slices that overlap on one thread, so sends in flight together get threads of their
// own: the first one that is free.
class SendThreads {
 public:
  int place(const SimulationEvent& event) {
    std::size_t thread = 0;
    while (thread < free_at_.size() && free_at_[thread] > event.start) ++thread;
    if (thread == free_at_.size()) free_at_.emplace_back();
    free_at_[thread] = event.end;
    return kFirstSendThread + static_cast<int>(thread);
  }
  std::size_t count() const { return free_at_.size(); }

 private:
  std::vector<Seconds> free_at_;
};

Json metadata(const char* what, int process, int thread, const std::string& name) {
  return {
      {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json slice(const SimulationEvent& event, int thread, int chunks) {
  return {{"name", label(event.op, chunks)},
          {"cat", name_of(event.op.kind)},
          {"ph", "X"},
          {"ts", event.start.value() * kMicroseconds},
          {"dur", (event.end - event.start).value() * kMicroseconds},
          {"pid", event.stage},
          {"tid", thread},
          {"args", {{"micro_batch", event.op.micro_batch}, {"chunk", event.op.chunk}}}};
}

}  // namespace

std::string trace_json(const Simulation& simulation, const PipelineShape& shape) {
  internal_check(!simulation.events.empty(), "a trace of a simulation that kept its events");
  Json events = Json::array();
  std::vector<SendThreads> sends(static_cast<std::size_t>(shape.stages));
  for (const SimulationEvent& event : simulation.events) {
    // A receive whose data was there already is no wait worth a slice.
    if (is_receive(event.op.kind) && event.end == event.start) continue;
    int thread = kComputeThread;
    if (is_receive(event.op.kind)) thread = kReceiveThread;
    if (is_send(event.op.kind)) thread = sends[static_cast<std::size_t>(event.stage)].place(event);
    events.push_back(slice(event, thread, shape.chunks));
  }
  for (int stage = 0; stage < shape.stages; ++stage) {
    events.push_back(metadata("process_name", stage, 0, fmt::format("stage {}", stage)));
    events.push_back(metadata("thread_name", stage, kComputeThread, "compute"));
    events.push_back(metadata("thread_name", stage, kReceiveThread, "receive"));
    const auto threads = static_cast<int>(sends[static_cast<std::size_t>(stage)].count());
    for (int i = 0; i < threads; ++i) {
      events.push_back(metadata("thread_name", stage, kFirstSendThread + i,
                                i == 0 ? "send" : fmt::format("send {}", i + 1)));
    }
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump(1);
}

}  // namespace braid
