#pragma once
// Calibration: the figures of a setup that data sheets do not have, fitted to runs that are named
// for it. A figure is shared by all runs of a set and usually by several sets; its expectation and
// spread, from the device's and the program's known behaviour, keep it where the runs say nothing.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "planner/validate/run.h"
#include "planner/validate/setup.h"

namespace braid {

struct Parameter {
  std::string name;
  std::vector<double*> places{};  // in the setups: one figure, kept equal everywhere
  double expected = 1;
  double spread = 0.3;  // of its logarithm
};

// Setups that share their fitted figures, by key_of.
struct Calibration {
  std::vector<std::string> setups;
  double noise = 0.03;  // a relative error of this size counts as one; larger ones count less
};
std::vector<Calibration> calibrations();

// What may be fitted, pointing into `setups`.
std::vector<Parameter> parameters_of(std::vector<RunSetup>& setups, const Calibration& calibration);
// The runs that a calibration is fitted to.
std::vector<MeasuredRun> runs_for(const Calibration& calibration, std::span<const MeasuredRun> runs,
                                  const std::vector<RunSetup>& setups);

struct FitOptions {
  int rounds = 40;
  std::function<void(int round, double loss)> progress;
};

// Moves the parameters to where the runs' predictions are closest: Levenberg-Marquardt on the
// logarithms of the ratios, with residuals beyond the noise weighed down; from the expected values.
// Takes the runs of its own setups among `runs`. Deterministic.
void fit(std::vector<RunSetup>& setups, const Calibration& calibration,
         std::span<const MeasuredRun> runs, const FitOptions& options = {});

// Fits on all but each fold in turn and predicts the fold: an honest figure from one file. Runs are
// dealt to folds by id.
struct Fold {
  std::vector<MeasuredRun> runs{};
  std::vector<RunSetup> setups{};  // fitted without them
};
std::vector<Fold> cross_validate(std::span<const MeasuredRun> runs, int folds,
                                 const FitOptions& options = {});

}  // namespace braid
