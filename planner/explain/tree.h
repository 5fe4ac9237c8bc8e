#pragma once
// The decision tree as a person reads it: what is searched, what was pruned, and why.

#include <string>

#include "planner/core/json_fwd.h"
#include "planner/explain/layout.h"
#include "planner/search/decision_tree.h"

namespace braid {

std::string render_tree(const DecisionTree& tree, const RenderOptions& options);
Json tree_json(const DecisionTree& tree);

}  // namespace braid
