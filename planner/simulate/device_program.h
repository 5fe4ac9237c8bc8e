#pragma once
// A stage's operations as steps of its streams: compute, ask for a collective, wait for one.

#include <map>
#include <tuple>
#include <vector>

#include "planner/simulate/event_simulator.h"

namespace braid {

// Seconds of compute, by what they count as.
struct StepSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0, reduce = 0, update = 0;
  double total() const { return forward + backward_input + backward_weight + reduce + update; }
};

struct Step {
  enum class Kind {
    compute,
    post,     // a collective joins the stream
    await,    // until the collective of this slot has ended
    barrier,  // until every device is here
  };
  Kind kind = Kind::compute;
  StepSeconds seconds = {};
  int slot = 0;
  const Message* message = nullptr;
  CommKind comm = CommKind::gather;
};
using Steps = std::vector<Step>;

// One stage's. Input and list must outlive it.
class DeviceProgram {
 public:
  DeviceProgram(const EventInput& input, const OpList& list, int stage);

  // Of the operation at this place of the list; empty for transfers.
  const Steps& steps(std::size_t place) const { return *by_place_[place]; }
  int num_slots() const { return num_slots_; }

 private:
  using Key = std::tuple<OpKind, int, bool>;  // with its chunk, and whether it is the chunk's last
  using List = std::vector<PassCollective> StageStreams::*;

  Steps build(const Key& key) const;
  Steps pass(const Key& key) const;
  Steps reduce() const;
  Steps update() const;
  StepSeconds seconds(OpKind kind) const;
  int first_slot(List list) const;

  PipelineShape shape_;
  const StageTimes& times_;
  const StageStreams* streams_;  // none: nothing beside the times
  int num_slots_ = 0;
  std::map<Key, Steps> built_;
  std::vector<const Steps*> by_place_;
};

}  // namespace braid
