#pragma once
// The part of the space that a profile has timed. A price far from everything that was timed is a
// guess, so there the heuristics of the decision tree prune, as they do for what a profile is asked
// to time (questions.h).

#include "planner/profile/profile.h"
#include "planner/search/decision_tree.h"

namespace braid {

// Whether some layer was timed under this split.
bool is_timed(const Profile& profile, const Strategy& strategy);

// Leaves that only a heuristic has pruned come back where the profile has timed their split, and
// configurations that a heuristic in force advises against go where a device would get more samples
// than were timed. Without a profile all leaves come back.
void keep_timed(DecisionTree& tree, const SpaceOptions& space, const Profile* profile);

}  // namespace braid
