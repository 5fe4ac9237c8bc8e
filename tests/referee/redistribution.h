#pragma once
// Bringing an activation from one layout to another: who holds which samples and tokens before and
// after, and so who sends what to whom.

#include "tests/referee/simplifications.h"
#include "tests/referee/wires.h"

namespace braid::referee {

// A stage before and after; `bytes` is the activation of one micro-batch, all devices together.
struct LayoutChange {
  std::vector<Coordinates> before, after;
  Strategy from, to;
  MeshOrder order = MeshOrder::pp_dp_cp_tp;
  bool zigzag = false;  // context parallelism gives each rank an early and a late block
  double bytes = 0;
};

// Seconds in one direction: the busiest wire, and log2 of the devices that exchange with each other
// hops, over the network where any of their messages leaves its node.
double redistribute(const Wires& wires, const LayoutChange& change, const Simplifications& simple);

}  // namespace braid::referee
