#pragma once
// Ranks as threads of one process: nothing to install, and what tests and sanitizers like best.

#include <chrono>
#include <functional>

#include "runtime/comm/group.h"

namespace braid::comm {

inline constexpr std::chrono::milliseconds kDefaultTimeout{300'000};

// Runs `rank_main` on `ranks` threads, each with its place in the world, and returns when all have
// ended. When one throws, the others' pending and later operations fail too, and the first
// exception (the cause, not its echoes) is rethrown here.
void run_in_process(int ranks, const std::function<void(Group& world)>& rank_main,
                    std::chrono::milliseconds timeout = kDefaultTimeout);

}  // namespace braid::comm
