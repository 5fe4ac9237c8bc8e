#include "planner/validate/links.h"

#include <algorithm>

namespace braid {
namespace {

// NCCL's buffer of one connection.
constexpr double kConnectionBuffer = 4 << 20;

}  // namespace

int RunLinks::devices_of(int stage) const {
  return split_.stages[static_cast<std::size_t>(stage)].tp * split_.cp * split_.dp;
}

int RunLinks::last_node_of(int stage) const {
  return (split_.devices_before(stage + 1) - 1) / setup_.fabric.node_width;
}

// Nodes with other links come last, and a stage that has one waits for it.
const Fabric& RunLinks::fabric_of(int stage) const {
  return last_node_of(stage) < setup_.first_other_node ? setup_.fabric : setup_.other_nodes;
}

// Inside a node its links; across nodes the cards of all the members that a node has, or of one of
// them. What a collective costs its program beyond the links is the fabric's latency.
double RunLinks::collective(CollectiveKind kind, double bytes, DeviceGroup group, int stage) const {
  if (group.size == 1) return 0;
  const Fabric& fabric = fabric_of(stage);
  const double card = setup_.fabric.card;
  const bool inside = group.size * group.stride <= fabric.node_width;
  const int members =
      inside ? group.size : std::clamp(fabric.node_width / group.stride, 1, group.size);
  const int cards = fabric.ring_has_one_card && members < fabric.node_width ? 1 : members;
  const double ring = fabric.shared ? fabric.inside * 2 / members : fabric.inside;
  const double time = collective_time(kind, bytes,
                                      {.per_node = members,
                                       .nodes = (group.size + members - 1) / members,
                                       .inside = ring,
                                       .across = std::min(fabric.inside, card * cards),
                                       .bus = fabric.shared});
  return time + (inside ? fabric.inside_latency : setup_.fabric.card_latency);
}

// Bytes/s across nodes for each device of a stage, when all of them send.
double RunLinks::send_rate(int stage) const {
  const Fabric& fabric = setup_.fabric;
  const double share = fabric.send > 0 ? fabric.send : fabric.card;
  return share * fabric.node_width / std::min(fabric.node_width, devices_of(stage));
}

double RunLinks::send(double hidden_bytes, int stage) const {
  const int tp = split_.stages[static_cast<std::size_t>(stage)].tp;
  const double bytes = setup_.program.scatters_sends ? hidden_bytes / tp : hidden_bytes;
  const Fabric& fabric = fabric_of(stage);
  const int here = split_.devices_before(stage), there = split_.devices_before(stage + 1);
  if (here / fabric.node_width == there / fabric.node_width)
    return fabric.inside_latency + bytes / fabric.point;
  const bool unlike = last_node_of(stage) < setup_.first_other_node &&
                      last_node_of(stage + 1) >= setup_.first_other_node;
  // A whole hidden state is one message; a part of one comes with its description.
  const bool stalls = unlike && tp > 1 && bytes < kConnectionBuffer;
  return setup_.fabric.card_latency + bytes / send_rate(stage) + (stalls ? setup_.fabric.stall : 0);
}

double RunLinks::between_ends(double bytes, int stage) const {
  const Fabric& fabric = setup_.fabric;
  const int devices = split_.devices_before(static_cast<int>(split_.stages.size()));
  const bool inside = devices <= fabric.node_width;
  return inside ? fabric.inside_latency + bytes / fabric.point
                : fabric.card_latency + bytes / send_rate(stage);
}

}  // namespace braid
