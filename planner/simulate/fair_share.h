#pragma once
// Links that several transfers use at once: each gets its max-min fair part.

#include <span>
#include <vector>

namespace braid {

// A flow stands for equal ranks that send alike: `ranks` of them use this link.
struct LinkUse {
  int link = 0;
  double ranks = 1;
};

struct Flow {
  double most = 0;  // bytes/s of one rank, with the links to itself
  std::span<const LinkUse> links;
};

// Max-min fair rates: no flow can get more without another one that has no more getting less. All
// ranks count alike, whichever flow they belong to. Keeps its scratch memory between calls, since a
// simulation asks at every event.
class FairShare {
 public:
  explicit FairShare(std::vector<double> capacities);  // bytes/s by link, above zero

  std::size_t num_links() const { return capacities_.size(); }
  // Bytes/s for each flow. A flow whose links have room for it gets exactly its `most`.
  void rates(std::span<const Flow> flows, std::vector<double>& result);

 private:
  struct Link {
    double left = 0;   // bytes/s that no settled flow uses
    double ranks = 0;  // of flows that are not settled
    bool seen = false;
  };
  Link& at(const LinkUse& use) { return links_[static_cast<std::size_t>(use.link)]; }
  double level(const Link& link) const;
  void settle(const Flow& flow, double rate);

  std::vector<double> capacities_;
  std::vector<Link> links_;
  std::vector<int> touched_;
};

}  // namespace braid
