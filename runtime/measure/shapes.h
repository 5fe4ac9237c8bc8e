#pragma once
// Which groups plans for a number of devices ask for: what is worth measuring, and nothing else.

#include <cstdint>
#include <vector>

#include "planner/core/units.h"
#include "planner/strategy/mesh.h"

namespace braid::measure {

// Of two members and more, over all orders of a mesh, numbers of stages and strategies; ascending.
std::vector<GroupShape> group_shapes(int devices);
// Between which messages go: to the next stage, or to the next rank of a ring; ascending.
std::vector<int> message_distances(int devices);
// From 1 KiB on, each eight times the one before, and `largest` itself.
std::vector<Bytes> message_sizes(Bytes largest);

}  // namespace braid::measure
