#pragma once
// What an allocator would reserve for a plan, beside the plan's own account.

#include <string>
#include <vector>

#include "planner/core/json_fwd.h"
#include "planner/explain/layout.h"
#include "planner/plan/plan.h"
#include "planner/simulate/allocator.h"

namespace braid {

// One stage, of one of its devices.
struct ReservedMemory {
  AllocatorBytes peak;  // with all the memory it asks for
  bool fits = false;    // into the stage's budget, where need be by giving free segments back
};
std::vector<ReservedMemory> reserved_by_stage(const Plan& plan);
std::string render_reserved(const std::vector<ReservedMemory>& stages, const Plan& plan,
                            const RenderOptions& options);
Json reserved_json(const std::vector<ReservedMemory>& stages, const Plan& plan);

}  // namespace braid
