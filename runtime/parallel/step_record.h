#pragma once
// What one rank did during one step, and when: the recorder's result. Times count from a moment
// that all ranks share. Plain data and arithmetic on it.

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/core/units.h"
#include "planner/plan/step_terms.h"
#include "planner/simulate/trace_writer.h"

namespace braid::parallel {

enum class Phase {
  forward,
  backward,
  backward_input,
  backward_weight,
  redistribute,  // packing and unpacking around the exchange
  reduce,        // copies and sums around the collectives
  update,
};
std::string name_of(Phase phase);

struct Interval {
  Seconds begin, end;
  constexpr Seconds length() const { return end - begin; }
  constexpr bool operator==(const Interval&) const = default;
};

// A stretch of the compute stream.
struct ComputeSpan {
  Phase phase = Phase::forward;
  std::string layer;
  int micro_batch = -1;
  Interval time;
};

enum class Role {
  together,   // in a collective or an exchange of one stage
  sends,      // a message to another stage
  receives,   // a message from another stage
  all_stages  // in a collective of all stages: who comes early waits for the last
};

struct CommSpan {
  CommKind kind = CommKind::other;
  Role role = Role::together;
  std::string layer;      // that it serves, if one
  std::string operation;  // as the group knows it
  std::string label;      // in a trace; empty: from layer and kind
  int micro_batch = -1;
  int peer = -1;                  // of a message: the other rank
  Interval time;                  // under way, from the beginning on this rank to the end
  std::vector<Interval> exposed;  // compute stood still; within `time`, in order
};

struct StepRecord {
  Interval time;
  std::vector<ComputeSpan> compute;  // in order, none within another
  std::vector<CommSpan> comm;        // in the order of beginning
};

// Messages between stages, as their channels know them.
inline constexpr const char* kActivation = "activation";
inline constexpr const char* kGradient = "gradient";

// When the messages of one step were sent, by sender, receiver and operation; in order.
using SendTimes = std::map<std::tuple<int, int, std::string>, std::vector<Seconds>>;

// The terms of this rank sum to the step's time. A wait for a message is bubble until the message
// was sent, by the sender's clock, and transfer after.
StepTerms terms_of(const StepRecord& record, int rank, const SendTimes& sent);

// Compute is drawn with gaps where it stood still.
TraceProcess trace_of(const std::vector<StepRecord>& steps, std::string name);

}  // namespace braid::parallel
