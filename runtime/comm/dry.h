#pragma once
// A group whose other members do not exist: operations check their arguments, count bytes and move
// nothing. Any rank of any plan can be played alone with it, on tensors without memory.

#include "runtime/comm/group.h"

namespace braid::comm {

std::unique_ptr<Group> dry_group(int rank, int size);

}  // namespace braid::comm
