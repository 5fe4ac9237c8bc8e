#include "tests/referee/wires.h"

#include <algorithm>
#include <map>

#include "planner/cost/assumptions.h"

namespace braid::referee {

namespace {

enum class WireKind { port_out, port_in, network_out, network_in };
struct Wire {
  int device = 0;
  WireKind kind = WireKind::port_out;
  auto operator<=>(const Wire&) const = default;
};

std::vector<Wire> wires_of(const Message& m, bool crosses) {
  std::vector<Wire> used = {{m.from, WireKind::port_out}, {m.to, WireKind::port_in}};
  if (crosses) {
    used.push_back({m.from, WireKind::network_out});
    used.push_back({m.to, WireKind::network_in});
  }
  return used;
}

}  // namespace

Wires::Wires(const Cluster& cluster) : between_(cluster.between) {
  int node = 0;
  for (const NodeGroup& group : cluster.groups)
    for (int n = 0; n < group.count; ++n, ++node)
      for (int d = 0; d < group.devices; ++d)
        devices_.push_back(
            {.node = node,
             .type = &cluster.device_types[static_cast<std::size_t>(group.device_type)],
             .inside = group.inside});
}

double Wires::latency(int a, int b) const {
  return crosses(a, b) ? between_.latency.value() : inside(a).latency.value();
}

std::vector<double> Wires::flow(const std::vector<Messages>& lists) const {
  std::map<Wire, double> load;  // bytes
  for (const Messages& list : lists)
    for (const Message& m : list)
      for (const Wire& wire : wires_of(m, crosses(m.from, m.to))) load[wire] += m.bytes;
  std::vector<double> seconds;
  for (const Messages& list : lists) {
    double busiest = 0;
    for (const Message& m : list)
      for (const Wire& wire : wires_of(m, crosses(m.from, m.to))) {
        const bool network =
            wire.kind == WireKind::network_out || wire.kind == WireKind::network_in;
        const Link& link = network ? between_ : inside(wire.device);
        busiest = std::max(busiest,
                           load[wire] / (link.bandwidth.value() * Assumptions{}.link_efficiency));
      }
    seconds.push_back(busiest);
  }
  return seconds;
}

double Wires::network_seconds(double bytes) const {
  return bytes / (between_.bandwidth.value() * Assumptions{}.link_efficiency);
}

std::vector<Coordinates> devices_of_stage(int devices, int stages, MeshOrder order, int stage,
                                          const Strategy& s) {
  std::vector<Coordinates> found;
  int device = 0;
  const auto visit = [&](int pp, int dp, int cp, int tp) {
    if (pp == stage && device < devices) found.push_back({device, dp, cp, tp});
    ++device;
  };
  switch (order) {
    case MeshOrder::pp_dp_cp_tp:
      for (int pp = 0; pp < stages; ++pp)
        for (int dp = 0; dp < s.dp; ++dp)
          for (int cp = 0; cp < s.cp; ++cp)
            for (int tp = 0; tp < s.tp; ++tp) visit(pp, dp, cp, tp);
      break;
    case MeshOrder::dp_cp_tp_pp:
      for (int dp = 0; dp < s.dp; ++dp)
        for (int cp = 0; cp < s.cp; ++cp)
          for (int tp = 0; tp < s.tp; ++tp)
            for (int pp = 0; pp < stages; ++pp) visit(pp, dp, cp, tp);
      break;
    case MeshOrder::pp_tp_cp_dp:
      for (int pp = 0; pp < stages; ++pp)
        for (int tp = 0; tp < s.tp; ++tp)
          for (int cp = 0; cp < s.cp; ++cp)
            for (int dp = 0; dp < s.dp; ++dp) visit(pp, dp, cp, tp);
      break;
  }
  return found;
}

}  // namespace braid::referee
