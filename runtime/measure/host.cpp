#include "runtime/measure/host.h"

#include <algorithm>
#include <fstream>

namespace braid::measure {

Bytes within_control_group(Bytes memory) {
  // Version 2 of control groups, then version 1. "max" and absence are no numbers, and no limit.
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(file);
    std::int64_t limit = 0;
    if (in >> limit && limit > 0) memory = std::min(memory, Bytes(limit));
  }
  return memory;
}

}  // namespace braid::measure
