#pragma once
// Every run priced, and how well that went, set by set.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/explain/accuracy.h"
#include "planner/validate/run.h"
#include "planner/validate/setup.h"
#include "planner/validate/split.h"

namespace braid {

// One figure of one run.
struct PricedFigure {
  const MeasuredRun* run = nullptr;
  std::string what;  // "seconds", "states", …
  Outturn outturn;
  bool rankable = false;  // a time: its group can be ranked
};

struct UnpricedRun {
  const MeasuredRun* run = nullptr;
  std::string reason;
};

struct Pricing {
  std::vector<PricedFigure> figures;
  std::vector<UnpricedRun> unpriced;
};

// Predicts what was measured of each run; runs that did not run at all are left out.
Pricing price_runs(std::span<const MeasuredRun> runs, const std::vector<Setup>& setups);

struct SetScore {
  std::string set;
  int rows = 0;      // runs that were priced
  int unpriced = 0;  // runs with a figure that was not
  double error = 0;  // mean of |predicted / measured - 1|
  // Over groups of equal model, devices and batch; none where no group has enough runs.
  std::optional<double> spearman{};  // mean over groups of three or more, by their sizes
  std::optional<double> regret{};    // mean excess of what we would pick, over groups of two or more
};
std::vector<SetScore> score(const Pricing& pricing);

}  // namespace braid
