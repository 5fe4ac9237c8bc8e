#pragma once
// Plays a schedule on streams and links. `simulate` knows stages and fixed times; this one also
// knows that a stage's replicas may differ, that gradients and parameters travel beside compute,
// that the two slow each other down, and that transfers share links. With nothing of that given
// the two play the same times.
//
// Equal ranks are played once: a device here is a stage of a class of pipelines that are alike, so
// that the work does not grow with the cluster.

#include <optional>
#include <vector>

#include "planner/cost/overlap.h"
#include "planner/plan/step_terms.h"
#include "planner/profile/fit.h"
#include "planner/simulate/simulator.h"

namespace braid {

enum class Reach { node, network };

// Communication with devices and links to itself.
struct Message {
  Seconds latency = {};  // before anything moves: holds no link, and nothing slows it down
  Seconds moving = {};
  // That meanwhile leave each device, and enter each; none: its links are never full.
  Bytes bytes = {};
  Reach reach = Reach::node;

  Seconds alone() const { return latency + moving; }
};
// From times over sizes: what an empty message takes is latency.
Message message_of(Bytes size, const Curve& seconds, Reach reach);

// A collective over the replicas of a stage, beside a pass of one of its chunks.
struct PassCollective {
  int chunk = 0;
  double at =
      0;  // of the pass's compute, 0 to 1: where a gather must be done, a reduction is ready
  Message message = {};
};

// What a stage communicates beside StageTimes. Collectives of a stage follow each other on one
// stream; those of a pass stand in the order of `at`.
struct StageStreams {
  std::optional<Message> transfer = {};              // in place of StageTimes::transfer
  std::vector<PassCollective> forward_gathers = {};  // asked for when the one before is used
  std::vector<PassCollective> backward_gathers = {};
  std::vector<PassCollective> scatters = {};    // of every backward
  std::vector<PassCollective> reductions = {};  // of a chunk's last backward
  std::vector<Message> regathers = {};          // behind the update
};

// How much longer a device takes than StageTimes say.
struct Pace {
  double forward = 1, backward_input = 1, backward_weight = 1, update = 1;
};

// Pipelines that are alike: each has one replica of every stage.
struct ReplicaClass {
  int pipelines = 1;
  std::vector<Pace> paces = {};  // by stage; empty: as StageTimes say
};

struct Port {
  int link = -1;     // none: never full
  double ranks = 1;  // of this device's equals that share the link with it
};
struct DevicePorts {
  Port node_out = {}, node_in = {}, network_out = {}, network_in = {};
};
// Given links, messages from one stage to another in one direction also follow each other.
struct Links {
  std::vector<BytesPerSecond> capacities = {};
  std::vector<DevicePorts> ports = {};  // by class, then stage
};

struct EventInput {
  PipelineShape shape;
  std::vector<StageTimes> times;
  std::vector<StageStreams> streams = {};   // by stage; empty: only what StageTimes have
  std::vector<ReplicaClass> replicas = {};  // empty: all alike
  Links links = {};
  Overlap transfer_overlap = {}, collective_overlap = {};
};

// Where the iteration of one device goes. The first nine add up to it.
struct DeviceUse {
  Seconds forward, backward_input, backward_weight, update;  // what overlap adds included
  Seconds transfer, gather, reduce;  // exposed: waiting for what is under way
  Seconds replicas;                  // for slower replicas of its own stage, at a collective
  Seconds bubble;                    // for other stages

  Seconds slowed_compute;        // part of the above: beside communication
  Seconds slowed_communication;  // exposed or not: beside compute
  Seconds waited_for_links;      // exposed or not: sharing them, or queueing for them

  Seconds total() const {
    return forward + backward_input + backward_weight + update + transfer + gather + reduce +
           replicas + bubble;
  }
};

// A collective beside a pass, or behind the update.
struct CollectiveEvent {
  int stage = 0;
  CommKind kind = CommKind::gather;
  int micro_batch = -1;
  Seconds start, end;

  constexpr bool operator==(const CollectiveEvent&) const = default;
};

struct EventSimulation {
  Seconds iteration;
  // By class, in the quick simulator's terms: waits inside a pass count as the pass, all others but
  // the reduction's as bubble.
  std::vector<Simulation> classes;
  std::vector<DeviceUse> devices;            // by class, then stage
  std::vector<CollectiveEvent> collectives;  // in order of their ends, if events were asked for
};

EventSimulation simulate_events(const EventInput& input, const SimulationOptions& options = {});
// Plays these lists, which must be free of faults, instead of the shape's own.
EventSimulation simulate_events(const Schedule& schedule, const EventInput& input,
                                const SimulationOptions& options = {});

}  // namespace braid
