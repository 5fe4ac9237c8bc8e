#include "planner/simulate/fair_share.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/core/error.h"

namespace braid {
namespace {

// Sums of rates round: a link with room for all its flows must not shave anything off them.
constexpr double kRoom = 1 + 1e-12;
constexpr double kUnset = -1;

}  // namespace

FairShare::FairShare(std::vector<double> capacities)
    : capacities_(std::move(capacities)), links_(capacities_.size()) {
  for (const double capacity : capacities_) internal_check(capacity > 0, "a link that moves bytes");
}

// What every unsettled rank on the link could have.
double FairShare::level(const Link& link) const {
  if (link.ranks <= 0) return std::numeric_limits<double>::infinity();
  return std::max(0.0, link.left) / link.ranks;
}

void FairShare::settle(const Flow& flow, double rate) {
  for (const LinkUse& use : flow.links) {
    at(use).left -= use.ranks * rate;
    at(use).ranks -= use.ranks;
  }
}

// Water-filling: all rates rise together until a flow has enough or a link is full; those are
// settled, and the rest rise on.
void FairShare::rates(std::span<const Flow> flows, std::vector<double>& result) {
  result.assign(flows.size(), kUnset);
  touched_.clear();
  for (const Flow& flow : flows) {
    for (const LinkUse& use : flow.links) {
      Link& link = at(use);
      if (!link.seen) {
        link = {.left = capacities_[static_cast<std::size_t>(use.link)], .ranks = 0, .seen = true};
        touched_.push_back(use.link);
      }
      link.ranks += use.ranks;
    }
  }
  for (std::size_t unsettled = flows.size(); unsettled > 0;) {
    int fullest = -1;
    double lowest = std::numeric_limits<double>::infinity();
    for (const int index : touched_) {
      const double here = level(links_[static_cast<std::size_t>(index)]);
      if (here < lowest) lowest = here, fullest = index;
    }
    bool satisfied = false;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (result[i] != kUnset || flows[i].most > lowest * kRoom) continue;
      result[i] = flows[i].most;
      settle(flows[i], result[i]);
      satisfied = true;
      --unsettled;
    }
    if (satisfied) continue;  // which may have raised the level
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (result[i] != kUnset) continue;
      const bool full =
          std::ranges::any_of(flows[i].links, [&](const LinkUse& u) { return u.link == fullest; });
      if (!full) continue;
      result[i] = lowest;
      settle(flows[i], lowest);
      --unsettled;
    }
    links_[static_cast<std::size_t>(fullest)].ranks = 0;  // exactly, whatever rounding left
  }
  for (const int index : touched_) links_[static_cast<std::size_t>(index)].seen = false;
}

}  // namespace braid
