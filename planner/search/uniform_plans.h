#pragma once
// Plans in which every block takes one strategy, over even cuts: what people run today, and the
// yardsticks that predictions are held against.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/search/finalists.h"
#include "planner/search/search.h"

namespace braid {

// One strategy for all blocks; embedding and head take the same without recomputation and with
// their parameters whole on every expert's device. None where a layer cannot be split so, nothing
// fits or the plan would take `limit` seconds or more. Adds to `priced` the layer costs computed.
std::optional<Finalist> uniform_plan(const SearchContext& context, const TreeBranch& branch,
                                     const Configuration& configuration, const Strategy& strategy,
                                     double limit, std::int64_t& priced);

// All of them that fit, over the decision tree's space; fastest first, equal ones in the tree's
// order. `options.algorithm` plays no part. `profile` may be null under the roofline.
std::vector<Plan> uniform_plans(const Model& model, const Cluster& cluster, const Profile* profile,
                                const SearchOptions& options);

// At most `count` of some plans of uniform_plans(), fastest first: first those that show every
// pipeline degree, schedule, kind of tensor parallelism, ZeRO level and recomputation there is, and
// whether context and experts are split; then evenly by rank. Plans that take more than `slowest`
// times as long as the fastest are left out.
std::vector<Plan> spread(const std::vector<Plan>& plans, int count, double slowest = 3);

}  // namespace braid
