#include "planner/cost/collective_model.h"

#include <algorithm>
#include <bit>

namespace braid {
namespace {

// NCCL's three protocols: LL sends eight bytes with a flag for every eight, LL128 a flag for every
// 120, Simple whole chunks with a fence. Start-up and step latencies in seconds, as in the tables
// that NCCL's own tuner works with (src/graph/tuning.cc).
struct Protocol {
  double bandwidth;  // share of the link's
  double ring_start, tree_start;
  double nvlink, bus, network;                 // a step of a ring
  double tree_nvlink, tree_bus, tree_network;  // a level of a tree
};
constexpr Protocol kProtocols[] = {
    {0.5, 6.6e-6, 6.8e-6, 0.6e-6, 1.0e-6, 2.7e-6, 0.6e-6, 1.0e-6, 5.0e-6},
    {0.9375, 14e-6, 14e-6, 1.9e-6, 2.5e-6, 4.0e-6, 1.25e-6, 1.9e-6, 8.5e-6},
    {1.0, 8.4e-6, 8.4e-6, 3.4e-6, 5.7e-6, 14e-6, 4.0e-6, 6.0e-6, 14e-6},
};

int levels(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1))); }

double inside_step(const Protocol& p, const CollectiveSite& site, bool tree) {
  const double own = tree ? (site.bus ? p.tree_bus : p.tree_nvlink) : (site.bus ? p.bus : p.nvlink);
  return own + site.inside_latency;
}
double across_step(const Protocol& p, const CollectiveSite& site, bool tree) {
  return (tree ? p.tree_network : p.network) + site.across_latency;
}

// One ring through all members, a hop between nodes for each node.
double ring(int passes, double bytes, const CollectiveSite& site, const Protocol& p) {
  const int n = site.size();
  const int hops = site.nodes > 1 ? site.nodes : 0;
  const double bandwidth = (site.nodes > 1 ? site.across : site.inside) * p.bandwidth;
  const double per_pass = (n - 1 - std::min(hops, n - 1)) * inside_step(p, site, false) +
                          std::min(hops, n - 1) * across_step(p, site, false);
  return p.ring_start + passes * (per_pass + (n - 1.0) / n * bytes / bandwidth);
}

// Up a tree over the nodes and down again; inside a node the members form a chain.
double tree(double bytes, const CollectiveSite& site, const Protocol& p) {
  const double bandwidth = (site.nodes > 1 ? site.across : site.inside) * p.bandwidth;
  const double depth = (site.per_node - 1) * inside_step(p, site, true) +
                       levels(site.nodes) * across_step(p, site, true);
  return p.tree_start + 2 * depth + 2 * bytes / bandwidth;
}

// Inside each node, then between equal members of the nodes, and inside again.
double hierarchical(int passes, double bytes, const CollectiveSite& site, const Protocol& p) {
  CollectiveSite node = site, between = site;
  node.nodes = 1;
  between.per_node = 1;
  between.across = site.across / site.per_node;
  return ring(passes, bytes, node, p) + ring(passes, bytes / site.per_node, between, p);
}

}  // namespace

double collective_time(CollectiveKind kind, double bytes, const CollectiveSite& site) {
  if (site.size() <= 1 || bytes <= 0) return 0;
  const int passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  double least = 0;
  for (const Protocol& p : kProtocols) {
    double time = ring(passes, bytes, site, p);
    if (kind == CollectiveKind::all_reduce) time = std::min(time, tree(bytes, site, p));
    if (site.nodes > 1 && site.per_node > 1)
      time = std::min(time, hierarchical(passes, bytes, site, p));
    if (least == 0 || time < least) least = time;
  }
  return least;
}

}  // namespace braid
