#include "tests/referee/redistribution.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace braid::referee {

namespace {

struct Interval {
  double begin = 0, end = 0;  // shares of all samples, or of all tokens
};

double overlap(const Interval& a, const Interval& b) {
  return std::max(0.0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

struct Holding {
  Interval samples;
  std::vector<Interval> tokens;
};

// The share of an activation that is in both.
double overlap(const Holding& a, const Holding& b) {
  double tokens = 0;
  for (const Interval& x : a.tokens)
    for (const Interval& y : b.tokens) tokens += overlap(x, y);
  return tokens * overlap(a.samples, b.samples);
}

// Context ranks cut the tokens into blocks, tensor ranks the concatenated blocks of their context
// rank into equal parts.
Holding holding(const Coordinates& c, const Strategy& s, bool zigzag) {
  Holding held;
  held.samples = {static_cast<double>(c.dp) / s.dp, static_cast<double>(c.dp + 1) / s.dp};
  std::vector<Interval> blocks;
  if (zigzag && s.cp > 1) {
    const double size = 1.0 / (2 * s.cp);
    const int late = 2 * s.cp - 1 - c.cp;
    blocks = {{c.cp * size, (c.cp + 1) * size}, {late * size, (late + 1) * size}};
  } else {
    blocks = {{static_cast<double>(c.cp) / s.cp, static_cast<double>(c.cp + 1) / s.cp}};
  }
  const double part = 1.0 / s.cp / s.tp;
  double skip = c.tp * part, left = part;
  for (const Interval& block : blocks) {
    const double size = block.end - block.begin;
    const double begin = block.begin + std::min(skip, size);
    const double end = std::min(block.end, begin + left);
    if (end > begin) held.tokens.push_back({begin, end});
    left -= end - begin;
    skip = std::max(0.0, skip - size);
  }
  return held;
}

// Sets of devices that messages connect, by device.
std::map<int, int> connected(const std::vector<Coordinates>& devices, const Messages& messages) {
  std::map<int, int> set;
  for (const Coordinates& c : devices) set[c.device] = c.device;
  for (std::size_t round = 0; round < devices.size(); ++round)
    for (const Message& m : messages) set[m.from] = set[m.to] = std::min(set[m.from], set[m.to]);
  return set;
}

double by_messages(const Wires& wires, const LayoutChange& change, const Messages& messages) {
  const std::map<int, int> set = connected(change.before, messages);
  std::map<int, Messages> lists;
  for (const Message& m : messages) lists[set.at(m.from)].push_back(m);
  std::vector<Messages> flows;
  std::vector<double> latency;
  for (const auto& [first, list] : lists) {
    double hop = 0, size = 0;
    for (const Message& m : list) hop = std::max(hop, wires.latency(m.from, m.to));
    for (const auto& [device, its_first] : set) size += its_first == first ? 1 : 0;
    flows.push_back(list);
    latency.push_back(std::log2(size) * hop);
  }
  const std::vector<double> flow = wires.flow(flows);
  double slowest = 0;
  for (std::size_t k = 0; k < flow.size(); ++k) slowest = std::max(slowest, latency[k] + flow[k]);
  return slowest;
}

// Simplifications::even_redistribution.
double by_the_busiest(const Wires& wires, const LayoutChange& change, const Messages& messages) {
  std::map<int, Messages> sent, far_sent, far_received;
  for (const Message& m : messages) {
    sent[m.from].push_back(m);
    if (!wires.crosses(m.from, m.to)) continue;
    far_sent[m.from].push_back(m);
    far_received[m.to].push_back(m);
  }
  const auto most = [](const std::map<int, Messages>& by_device) {
    double bytes = 0;
    for (const auto& [device, list] : by_device)
      bytes = std::max(bytes,
                       std::accumulate(list.begin(), list.end(), 0.0,
                                       [](double sum, const Message& m) { return sum + m.bytes; }));
    return bytes;
  };
  const double all_bytes = most(sent), far_bytes = std::max(most(far_sent), most(far_received));
  // Devices that share samples; where replicas are neighbours, the whole stage.
  const int sets =
      change.order == MeshOrder::pp_tp_cp_dp ? 1 : std::gcd(change.from.dp, change.to.dp);
  double slowest = 0;
  for (int set = 0; set < sets; ++set) {
    Messages ports, networks;
    double latency = 0, size = 0;
    for (const Coordinates& c : change.before) {
      if (c.dp / (change.from.dp / sets) != set) continue;
      ++size;
      ports.push_back({c.device, c.device, all_bytes});
      latency = std::max(latency, wires.inside(c.device).latency.value());
    }
    double seconds = 0;
    for (const Message& m : ports) seconds = std::max(seconds, wires.flow({{m}}).front());
    if (far_bytes > 0) {
      latency = wires.between().latency.value();
      seconds = std::max(seconds, wires.network_seconds(far_bytes));
    }
    slowest = std::max(slowest, std::log2(size) * latency + seconds);
  }
  return slowest;
}

}  // namespace

double redistribute(const Wires& wires, const LayoutChange& change, const Simplifications& simple) {
  const Strategy &a = change.from, &b = change.to;
  if (a.dp == b.dp && a.cp == b.cp && a.tp == b.tp) return 0;
  Messages messages;
  constexpr double kRounding = 1e-9;
  for (const Coordinates& x : change.before)
    for (const Coordinates& y : change.after) {
      const double share = overlap(holding(x, a, change.zigzag), holding(y, b, change.zigzag));
      if (x.device != y.device && share > kRounding)
        messages.push_back({x.device, y.device, share * change.bytes});
    }
  if (messages.empty()) return 0;
  return simple.even_redistribution ? by_the_busiest(wires, change, messages)
                                    : by_messages(wires, change, messages);
}

}  // namespace braid::referee
