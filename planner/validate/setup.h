#pragma once
// What a set of runs was measured with: devices, links and the program. A setup is described once
// for all runs of its set; nothing in it belongs to a single run.

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "planner/cost/device_model.h"
#include "planner/validate/run.h"

namespace braid {

// Links of a cluster of equal nodes, as seen by one device.
struct Fabric {
  int node_width = 8;             // devices of a node
  double inside = 230e9;          // bytes/s that a ring inside a node reaches
  double inside_latency = 20e-6;  // of a collective
  double card = 10e9;             // bytes/s across nodes, one device's share of the node's cards
  double card_latency = 30e-6;
  double send = 0;      // bytes/s of a send across nodes, one device's share; zero: as `card`
  double stall = 0;     // seconds of a send between unlike nodes that is smaller than a buffer
  double point = 20e9;  // bytes/s of a send inside a node
  bool shared = false;  // the devices of a node share one bus: `inside` is that of two
  // A ring through some devices of a node leaves it by the card of one; through all, by all cards.
  bool ring_has_one_card = false;
};

// How a training program spends its time beyond the arithmetic that all of them share.
struct Program {
  bool flash = false;              // attention in one kernel, scores never in memory
  bool sequence_parallel = false;  // norms and residuals split over the tensor group
  bool sharded = false;            // parameters gathered layer by layer (ZeRO-3)
  bool scatters_sends = true;      // each tensor rank sends its part of a hidden state
  bool shards_optimizer = false;   // over the replicas
  bool balances_ring = true;       // causal pieces dealt evenly over a context-parallel ring
  bool pads_vocabulary = true;     // to a multiple of 128 on one device too
  double repeats = 1;              // forward passes that "full" recomputation repeats
  double selective_repeats = 0;    // the same of "selective"; zero: attention's scores alone
  double eager = 1;                // memory traffic without compilation
  double rowwise = 1;              // and with fp8 scales by row
  double gradient_bytes = 2;       // of one parameter, as reduced
  double optimizer_bytes = 40;     // moved for one parameter in an update
  double overlap = 0;              // share of the gradients' reduction under backward
  double tensor_overlap = 0;       // share of the tensor-parallel collectives under products
  double gather_overlap = 1;       // share of ZeRO-3's collectives under compute
  double send_exposed = 1;         // share of a stage's sends that holds up its compute

  // Bytes of memory traffic for one element of the hidden state (a score), forward; backward takes
  // half as much again.
  double traffic = 38;
  double score_traffic = 9;
  double unfused_traffic = 20;  // more, where the fused softmax cannot run
  double loss_traffic = 24;     // one logit, both ways

  // The host: seconds to launch a layer's forward and backward, a collective, a micro-batch.
  double host_forward = 0, host_backward = 0, host_collective = 0, host_unfused = 0;
  double host_batch = 0, host_stage = 0;
  double sharpness = 4;  // how sharply the slower of host and device decides
  double iteration = 0;  // seconds once an iteration
};

struct RunSetup {
  std::string_view set;
  std::string_view gpu{};              // the start of the runs' gpu, where a set has several kinds
  std::vector<DeviceModel> devices{};  // by node, the last for all that follow
  Fabric fabric{};
  // Where nodes differ: the first with other links inside, and these.
  int first_other_node = std::numeric_limits<int>::max();
  Fabric other_nodes{};  // its cards are not looked at: the slower ones decide
  Program program{};
  // Of a device's memory, what its planner filled: the rest is for the context and for what the
  // allocator cannot use.
  double usable = 0.90;
  double interval = 0.2;  // nine of ten runs lie within this much of their prediction
};

// "set" or "set/gpu".
std::string key_of(const RunSetup& setup);

// All setups that are described, with the figures fitted for them.
std::vector<RunSetup> described_setups();
// The one for a run: of its own set, or of another that used such a device; null where there is
// none.
const RunSetup* setup_of(const std::vector<RunSetup>& setups, const MeasuredRun& run);

}  // namespace braid
