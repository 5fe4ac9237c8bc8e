#pragma once
// Who communicates with whom: the groups of a stage's devices under one strategy, by coordinates.

#include "tests/referee/collectives.h"

namespace braid::referee {

struct StageGroups {
  Groups tensor;           // differ in tp alone
  Groups context;          // differ in cp alone
  Groups replicas;         // hold the same parameters
  Groups experts;          // share the experts: ep neighbours along dp
  Groups expert_replicas;  // hold the same experts
};

StageGroups groups_of(const std::vector<Coordinates>& devices, const Strategy& strategy);

}  // namespace braid::referee
