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
  bool rankable = false;        // a time: its group can be ranked
  double lower = 0, upper = 0;  // of a time
  double bound = 0;             // of a time
};

struct UnpricedRun {
  const MeasuredRun* run = nullptr;
  std::string reason;
};

struct Pricing {
  std::vector<PricedFigure> figures;
  std::vector<UnpricedRun> unpriced;
  std::vector<UnpricedRun> refused;  // no run can be so
};

// Predicts what was measured of each run; runs that did not run at all are left out.
Pricing price_runs(std::span<const MeasuredRun> runs, const std::vector<RunSetup>& setups);

struct SetScore {
  std::string set;
  int rows = 0;      // runs that were priced
  int unpriced = 0;  // runs with a figure that was not
  int refused = 0;   // runs that cannot be
  double error = 0;  // mean of |predicted / measured - 1|
  double most = 0;   // nine of ten figures err by no more
  int within = 0;    // times inside their interval
  int times = 0;
  int below_bound = 0;  // measured faster than the device's peak allows
  // Over groups of equal model, devices and batch; none where no group has enough runs.
  std::optional<double> spearman{};  // mean over groups of three or more, by their sizes
  std::optional<double> regret{};  // mean excess of what we would pick, over groups of two or more
};
std::vector<SetScore> score(const Pricing& pricing);

// What to keep free for PyTorch's allocator so that what is allocated really fits.
double safe_reserve(double allocated, double device_memory);

struct ReserveScore {
  int ranks = 0;
  int under = 0;    // ranks that reserved more than was kept free
  double over = 0;  // mean of what was kept free beyond, as a fraction
};
ReserveScore score_reserves(std::span<const MeasuredRun> runs, const std::vector<RunSetup>& setups);

}  // namespace braid
