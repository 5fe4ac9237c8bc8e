#include "planner/search/timed_space.h"

#include <algorithm>
#include <cstdint>

namespace braid {

namespace {

bool same_split(const ComputeSample& sample, const Strategy& s) {
  return sample.kind == s.tp_kind && sample.split == s.tp && sample.context == s.cp;
}

// The most samples for which some layer was timed under this split; 0: none.
double most_samples(const Profile& profile, const Strategy& s) {
  double most = 0;
  for (const MeasuredLayer& layer : profile.layers)
    for (const ComputeSample& sample : layer.compute)
      if (same_split(sample, s)) most = std::max(most, sample.samples);
  return most;
}

bool is_timed(const Profile& profile, const TreeBranch& branch, const Configuration& c) {
  return std::ranges::all_of(kept_strategies(branch), [&](const Strategy& s) {
    if (c.micro_batch % s.dp != 0) return true;
    const std::int64_t samples = c.micro_batch / s.dp;
    return static_cast<double>(samples) <= most_samples(profile, s);
  });
}

}  // namespace

bool is_timed(const Profile& profile, const Strategy& s) { return most_samples(profile, s) > 0; }

void keep_timed(DecisionTree& tree, const SpaceOptions& space, const Profile* profile) {
  restore_leaves(tree,
                 [&](const Strategy& s) { return profile == nullptr || is_timed(*profile, s); });
  if (profile == nullptr) return;
  std::erase_if(tree.configurations, [&](const Configuration& c) {
    const std::optional<Rule> rule = advice_against(c);
    if (!rule || !space.applies(*rule) || is_timed(*profile, branch_of(tree, c.shape.stages), c))
      return false;
    ++tree.pruned_configurations[*rule];
    return true;
  });
}

}  // namespace braid
