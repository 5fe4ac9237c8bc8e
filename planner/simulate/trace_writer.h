#pragma once
// Timelines for Perfetto and chrome://tracing. Simulated and recorded steps are written alike, so
// that the two can be laid side by side: a process for each stage or rank, with a track "compute"
// and as many tracks "communication" as run beside each other.

#include <span>
#include <string>
#include <vector>

#include "planner/core/units.h"
#include "planner/simulate/schedule.h"

namespace braid {

struct TraceSlice {
  std::string name;      // "blocks.3 F2", "blocks.3 gather", "send act 2"
  std::string category;  // a phase of compute, or a kind of communication
  Seconds start, end;
  int micro_batch = -1;        // none
  std::string operation = {};  // of communication: what the runtime calls it
};

struct TraceProcess {
  std::string name;
  std::vector<TraceSlice> compute;        // one after the other
  std::vector<TraceSlice> communication;  // in any order, beside each other or not
};

// The events of one process as JSON objects, each on a line of its own. `id` orders processes.
std::string trace_events(int id, const TraceProcess& process);
// The file, from the events of all its processes.
std::string trace_file(std::span<const std::string> processes);

// What compute of one micro-batch is called: F2, B2, W2.
std::string phase_label(OpKind phase, int micro_batch);
// "send act 2", "receive grad 2"; with the chunk where a stage has several.
std::string transfer_label(const Op& op, int chunks);

}  // namespace braid
