#pragma once
// A group whose other members do not exist: operations check their arguments, count bytes and move
// nothing. Any rank of any plan can be played alone with it, on tensors without memory.

#include "runtime/comm/group.h"

namespace braid::comm {

// What a rank would send, by algorithms that send as little as can be.
struct Traffic {
  std::int64_t operations = 0;
  std::int64_t bytes = 0;
};

// Subgroups count into the same place. split() does not work: nobody answers.
std::unique_ptr<Group> dry_group(int rank, int size, std::shared_ptr<Traffic> traffic = nullptr);
// The same in the host's memory, with an echo: what comes from the others is what this rank gave,
// so that results are numbers of a usual size.
std::unique_ptr<Group> echo_group(int rank, int size);

}  // namespace braid::comm
