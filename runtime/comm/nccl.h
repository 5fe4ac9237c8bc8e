#pragma once
// Ranks as processes with a GPU each. Buffers are in the GPU's memory; operations run on streams of
// the group's own, after what the current stream holds, and a wait makes the current stream wait,
// not the host. Only barrier(), subgroup() and split() keep the host waiting.
//
// Of one group, three things run independently of each other and each in the order of calls: the
// collectives, the messages from lower to higher ranks, and those from higher to lower ones.
//
// A thread watches the operations under way. Past the timeout it asks all ranks what they have
// begun, prints who is elsewhere and ends the process: nothing else stops a GPU that waits.

#include <chrono>

#include "runtime/comm/bootstrap.h"
#include "runtime/comm/group.h"

namespace braid::comm {

bool nccl_available();       // in this build
std::string nccl_version();  // "2.27.5"; empty without NCCL
// Whether NCCL was told that several ranks may have one GPU (NCCL_MULTI_RANK_GPU_ENABLE).
bool ranks_share_gpus();

// Takes the GPU that device_of() says, and keeps it as the thread's current device.
std::unique_ptr<Group> nccl_world(const Launch& launch, std::chrono::milliseconds timeout);

}  // namespace braid::comm
