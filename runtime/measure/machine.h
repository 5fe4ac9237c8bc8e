#pragma once
// What the ranks run on: the facts that say where a profile holds, and the nodes of the cluster.

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "planner/profile/profile.h"
#include "runtime/comm/bootstrap.h"
#include "runtime/comm/group.h"

namespace braid::measure {

// Neighbouring nodes that are equal.
struct NodeKind {
  int nodes = 1;
  int ranks = 1;       // on each
  std::string device;  // of one rank: a GPU's name, or the CPU's
  Bytes memory;        // of one rank's device: all of a GPU's, a share of a host's
  bool fp8 = false;    // a GPU with products in fp8
  bool operator==(const NodeKind&) const = default;
};

struct Machine {
  // No host's name and no date: the profile of one machine holds on its equal.
  std::vector<Fact> facts;
  std::vector<NodeKind> kinds;  // in the order of ranks
  int ranks_per_gpu = 0;        // the most that share one; 0 on CPUs
  Bytes free;                   // that every rank can still take

  int kind_of(int rank) const;  // index into kinds
  int num_nodes() const;
};

// Collective, and the same on all ranks. Throws Error where ranks of one node do not follow each
// other: plans count on it.
Machine find_machine(comm::Group& world, c10::Device device, comm::BackendKind backend);
std::vector<Fact> facts_of(comm::Group& world, c10::Device device, comm::BackendKind backend);

// Throws Error for a limit (--memory) that no rank's device has.
void expect_limit_within(const Machine& machine, Bytes limit);

// Throws an Error that lists what differs. A profile without facts was not measured here by Braid
// and is taken as it is.
void expect_taken_here(const Profile& profile, const std::vector<Fact>& now,
                       const std::string& file);

// Every rank's text, on all ranks. Collective.
std::vector<std::string> gather_texts(const std::string& mine, comm::Group& world,
                                      c10::Device device);

}  // namespace braid::measure
