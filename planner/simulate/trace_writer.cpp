#include "planner/simulate/trace_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/core/error.h"
#include "planner/core/json.h"

namespace braid {
namespace {

constexpr int kComputeTrack = 0;
constexpr int kFirstCommunicationTrack = 1;
constexpr double kMicroseconds = 1e6;  // the format's unit of time

// A line of the file. Names come from model files: bytes that are no UTF-8 are replaced.
std::string line(const Json& event) {
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string metadata(const char* what, int process, int track, const std::string& name) {
  return line(
      {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", {{"name", name}}}});
}

std::string event(const TraceSlice& slice, int process, int track) {
  Json json = {{"name", slice.name},
               {"cat", slice.category},
               {"ph", "X"},
               {"ts", slice.start.value() * kMicroseconds},
               {"dur", (slice.end - slice.start).value() * kMicroseconds},
               {"pid", process},
               {"tid", track}};
  if (slice.micro_batch >= 0) json["args"]["micro_batch"] = slice.micro_batch;
  if (!slice.operation.empty()) json["args"]["operation"] = slice.operation;
  return line(json);
}

// Viewers nest slices that overlap on one track, so those under way together get tracks of their
// own: the first one that is free.
class Tracks {
 public:
  int place(const TraceSlice& slice) {
    std::size_t track = 0;
    while (track < free_at_.size() && free_at_[track] > slice.start) ++track;
    if (track == free_at_.size()) free_at_.emplace_back();
    free_at_[track] = slice.end;
    return kFirstCommunicationTrack + static_cast<int>(track);
  }
  int count() const { return std::max(1, static_cast<int>(free_at_.size())); }

 private:
  std::vector<Seconds> free_at_;
};

}  // namespace

std::string trace_events(int id, const TraceProcess& process) {
  std::vector<std::string> lines = {metadata("process_name", id, 0, process.name),
                                    line({{"name", "process_sort_index"},
                                          {"ph", "M"},
                                          {"pid", id},
                                          {"tid", 0},
                                          {"args", {{"sort_index", id}}}}),
                                    metadata("thread_name", id, kComputeTrack, "compute")};
  for (const TraceSlice& slice : process.compute) lines.push_back(event(slice, id, kComputeTrack));
  std::vector<TraceSlice> communication = process.communication;
  std::ranges::stable_sort(communication, {}, &TraceSlice::start);
  Tracks tracks;
  for (const TraceSlice& slice : communication)
    lines.push_back(event(slice, id, tracks.place(slice)));
  for (int i = 0; i < tracks.count(); ++i)
    lines.push_back(metadata("thread_name", id, kFirstCommunicationTrack + i,
                             i == 0 ? "communication" : fmt::format("communication {}", i + 1)));
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string trace_file(std::span<const std::string> processes) {
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n",
                     fmt::join(processes, ",\n"));
}

std::string phase_label(OpKind phase, int micro_batch) {
  switch (phase) {
    case OpKind::forward:
      return fmt::format("F{}", micro_batch);
    case OpKind::backward:
    case OpKind::backward_input:
      return fmt::format("B{}", micro_batch);
    case OpKind::backward_weight:
      return fmt::format("W{}", micro_batch);
    case OpKind::reduce:
    case OpKind::update:
      return name_of(phase);
    case OpKind::send_activation:
    case OpKind::receive_activation:
    case OpKind::send_gradient:
    case OpKind::receive_gradient:
      break;
  }
  internal_failure("a transfer is no phase of compute", std::source_location::current());
}

std::string transfer_label(const Op& op, int chunks) {
  const bool sends = op.kind == OpKind::send_activation || op.kind == OpKind::send_gradient;
  const bool gradient = op.kind == OpKind::send_gradient || op.kind == OpKind::receive_gradient;
  std::string label = fmt::format("{} {} {}", sends ? "send" : "receive", gradient ? "grad" : "act",
                                  op.micro_batch);
  if (chunks > 1) label += fmt::format(" chunk {}", op.chunk);
  return label;
}

}  // namespace braid
