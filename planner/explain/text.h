#pragma once
// A plan as a person reads it.

#include <string>

#include "planner/explain/layout.h"
#include "planner/search/search.h"

namespace braid {

// The whole answer of a search: the plan, how good it is, and what lost; or why nothing fits.
std::string render_text(const SearchResult& result, const RenderOptions& options);
// A plan by itself.
std::string render_text(const Plan& plan, const RenderOptions& options);
// Which constraint binds, by how much, and the smallest change that fits.
std::string render_text(const Infeasible& infeasible, const RenderOptions& options);

}  // namespace braid
