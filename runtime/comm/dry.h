#pragma once
// A group whose other members do not exist: operations check their arguments, count bytes and move
// nothing. Any rank of any plan can be played alone with it, on tensors without memory.

#include <functional>
#include <map>

#include "runtime/comm/operation.h"

namespace braid::comm {

struct Traffic {
  std::int64_t operations = 0;
  std::int64_t bytes = 0;  // that a rank would send, by algorithms that send as little as can be

  // Of one kind, with the bytes by which a collective is measured: of the whole tensor for a
  // gather's result and a sum, of what a rank gives for an all-to-all and for messages.
  struct Volume {
    std::int64_t operations = 0;
    std::int64_t bytes = 0;
    bool operator==(const Volume&) const = default;
  };
  std::map<OperationKind, Volume> by_kind;
};

// Subgroups count into the same place. split() does not work: nobody answers.
std::unique_ptr<Group> dry_group(int rank, int size, std::shared_ptr<Traffic> traffic = nullptr);

// Copies `bytes` so many times, one after the other. The places may overlap where they are equal.
using Echo = std::function<void(const void* from, void* to, std::int64_t bytes, int times)>;
void echo_on_host(const void* from, void* to, std::int64_t bytes, int times);
// The same with an echo: what comes from the others is what this rank gave, so that results are
// numbers of a usual size. `echo` copies in the memory of the device.
std::unique_ptr<Group> echo_group(int rank, int size, Echo echo = echo_on_host);

}  // namespace braid::comm
