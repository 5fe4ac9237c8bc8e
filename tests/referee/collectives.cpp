#include "tests/referee/collectives.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace braid::referee {

namespace {

using ByNode = std::map<int, Group>;

ByNode by_node(const Wires& wires, const Group& group) {
  ByNode nodes;
  for (const int device : group) nodes[wires.node_of(device)].push_back(device);
  return nodes;
}

Messages rings(const Wires& wires, const Group& group, double bytes) {
  const ByNode nodes = by_node(wires, group);
  std::size_t stripes = group.size();
  for (const auto& [node, members] : nodes) stripes = std::min(stripes, members.size());
  const auto n = static_cast<double>(group.size());
  const double stripe = bytes / static_cast<double>(stripes);
  Messages messages;
  for (std::size_t r = 0; r < stripes; ++r) {
    Group ring;
    for (const auto& [node, members] : nodes)
      for (std::size_t k = 0; k < members.size(); ++k)
        ring.push_back(members[(r + k) % members.size()]);
    // Each member's part of the stripe passes every hop but the one that would bring it home.
    for (std::size_t k = 0; k < ring.size(); ++k)
      messages.push_back({ring[k], ring[(k + 1) % ring.size()], (n - 1) / n * stripe});
  }
  return messages;
}

int tree_levels(std::size_t nodes) {
  int levels = 0;
  for (std::size_t reached = 1; reached < nodes; reached *= 2) ++levels;
  return levels;
}

bool trivial(const Groups& groups, double bytes) {
  return bytes <= 0 || groups.empty() || groups.front().size() <= 1;
}

}  // namespace

double Collectives::latency_of_rings(const Group& group) const {
  const ByNode nodes = by_node(wires_, group);
  double slowest = 0;
  for (const auto& [node, members] : nodes)
    slowest = std::max(slowest, (static_cast<double>(members.size()) - 1) *
                                    wires_.inside(members.front()).latency.value());
  return slowest + tree_levels(nodes.size()) * wires_.between().latency.value();
}

double Collectives::all_gather(const Groups& groups, double bytes) const {
  if (trivial(groups, bytes)) return 0;
  std::vector<Messages> lists;
  for (const Group& group : groups) lists.push_back(rings(wires_, group, bytes));
  const std::vector<double> flow = wires_.flow(lists);
  double slowest = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    slowest = std::max(slowest, latency_of_rings(groups[g]) + flow[g]);
  return slowest;
}

double Collectives::all_to_all(const Groups& groups, double bytes) const {
  if (trivial(groups, bytes)) return 0;
  std::vector<Messages> lists;
  for (const Group& group : groups) {
    Messages messages;
    for (const int from : group)
      for (const int to : group)
        if (from != to) messages.push_back({from, to, bytes / static_cast<double>(group.size())});
    lists.push_back(messages);
  }
  const std::vector<double> flow = wires_.flow(lists);
  double slowest = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    double hop = 0;
    for (const Message& m : lists[g])
      if (wires_.crosses(m.from, m.to)) hop = wires_.between().latency.value();
    if (hop == 0) hop = wires_.inside(groups[g].front()).latency.value();
    slowest = std::max(slowest, std::log2(static_cast<double>(groups[g].size())) * hop + flow[g]);
  }
  return slowest;
}

double Collectives::independent(const Messages& messages) const {
  std::vector<Messages> lists;
  for (const Message& m : messages) lists.push_back({m});
  const std::vector<double> flow = wires_.flow(lists);
  double slowest = 0;
  for (std::size_t k = 0; k < messages.size(); ++k)
    slowest = std::max(slowest, wires_.latency(messages[k].from, messages[k].to) + flow[k]);
  return slowest;
}

double Collectives::ring_shift(const Groups& groups, double bytes) const {
  if (trivial(groups, bytes)) return 0;
  Messages messages;
  for (const Group& group : groups)
    for (std::size_t k = 0; k < group.size(); ++k)
      messages.push_back({group[k], group[(k + 1) % group.size()], bytes});
  return independent(messages);
}

double Collectives::transfer(const Group& from, const Group& to, double bytes) const {
  if (bytes <= 0) return 0;
  Messages messages;
  for (std::size_t k = 0; k < from.size(); ++k)
    if (from[k] != to[k]) messages.push_back({from[k], to[k], bytes});
  return independent(messages);
}

}  // namespace braid::referee
