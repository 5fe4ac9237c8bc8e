#pragma once
// What the files of `braid compare` share.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/world.h"
#include "planner/explain/comparison.h"
#include "planner/search/search.h"

namespace braid::cli {

struct CompareOptions {
  SearchOptions search;
  std::vector<Algorithm> algorithms;
  std::vector<std::filesystem::path> files;  // plans to add
  int more = 0;                              // uniform plans to add
  int steps = 8, warm_up = 2;                // of a plan's turn
  int rounds = 1;                            // turns of a plan
  std::filesystem::path out, markdown;       // empty: none
  bool rerun = false;                        // what was measured before counts for nothing
  bool retry = false;                        // plans that failed before get another chance
};

// The plans to compare, those that an earlier run measured with their figures. Without any plan
// that fits there is the reason.
struct Prepared {
  Comparison comparison;
  std::optional<Infeasible> infeasible;
  int signal = 0;  // that came while plans were searched; 0: none
};
Prepared prepare_comparison(const Task& task, const Place& place, const CompareOptions& options);

// Runs the plans that have not been measured, in one world, and keeps the comparison (rank 0's) and
// its file up to date. Calls `finish` on rank 0 in the end. Throws Error where the profile was
// taken elsewhere. May end the process.
int run_comparison(Comparison& comparison, const std::optional<LoadedProfile>& profile,
                   const Place& place, const CompareOptions& options,
                   const std::function<void()>& finish);

std::string comparison_text(const Comparison& comparison, const RenderOptions& look);
std::string comparison_markdown(const Comparison& comparison);
// "exact, bmw: ×1 · dp4 zero1"
std::string title_of(const ComparedPlan& compared);

}  // namespace braid::cli
