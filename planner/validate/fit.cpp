#include "planner/validate/fit.h"

#include <algorithm>
#include <cmath>

#include "planner/validate/score.h"

namespace braid {
namespace {

using Row = std::vector<double>;

// Residuals: log(predicted / measured) for every time, in units of the noise.
Row residuals(const std::vector<RunSetup>& setups, std::span<const MeasuredRun> runs,
              double noise) {
  Row all;
  for (const PricedFigure& figure : price_runs(runs, setups).figures)
    if (figure.rankable)
      all.push_back(std::log(figure.outturn.predicted / figure.outturn.measured) / noise);
  return all;
}

// Soft absolute value: quadratic near zero, linear far away.
double soft(double r) { return 2 * (std::sqrt(1 + r * r) - 1); }
double weight(double r) { return 1 / std::sqrt(1 + r * r); }

double loss_of(const Row& r, std::span<const Parameter> parameters, const Row& x) {
  double sum = 0;
  for (const double one : r) sum += soft(one);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double off = (x[i] - std::log(parameters[i].expected)) / parameters[i].spread;
    sum += off * off;
  }
  return sum;
}

void put(std::span<const Parameter> parameters, const Row& x) {
  for (std::size_t i = 0; i < x.size(); ++i)
    for (double* place : parameters[i].places) *place = std::exp(x[i]);
}

// Solves a symmetric positive definite system in place (Cholesky); false where it is not.
bool solve(std::vector<Row> a, Row& b) {
  const std::size_t n = b.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    if (!(a[j][j] > 0)) return false;
    a[j][j] = std::sqrt(a[j][j]);
    for (std::size_t i = j + 1; i < n; ++i) {
      for (std::size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return true;
}

}  // namespace

void fit(std::vector<RunSetup>& setups, const Calibration& calibration,
         std::span<const MeasuredRun> all, const FitOptions& options) {
  constexpr double kStep = 1e-3;
  const std::vector<Parameter> parameters = parameters_of(setups, calibration);
  const std::vector<MeasuredRun> runs = runs_for(calibration, all, setups);
  const std::size_t n = parameters.size();
  Row x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::log(parameters[i].expected);
  put(parameters, x);
  Row r = residuals(setups, runs, calibration.noise);
  double loss = loss_of(r, parameters, x);
  double damping = 1e-2;
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<Row> slopes(n);
    for (std::size_t j = 0; j < n; ++j) {
      Row moved = x;
      moved[j] += kStep;
      put(parameters, moved);
      slopes[j] = residuals(setups, runs, calibration.noise);
      for (std::size_t i = 0; i < r.size(); ++i) slopes[j][i] = (slopes[j][i] - r[i]) / kStep;
    }
    std::vector<Row> normal(n, Row(n, 0));
    Row gradient(n, 0);
    for (std::size_t j = 0; j < n; ++j) {
      const double precision = 1 / (parameters[j].spread * parameters[j].spread);
      for (std::size_t i = 0; i < r.size(); ++i) {
        const double w = weight(r[i]);
        gradient[j] -= w * r[i] * slopes[j][i];
        for (std::size_t k = 0; k <= j; ++k) normal[j][k] += w * slopes[j][i] * slopes[k][i];
      }
      normal[j][j] += precision;
      gradient[j] -= precision * (x[j] - std::log(parameters[j].expected));
    }
    bool better = false;
    for (int attempt = 0; attempt < 8 && !better; ++attempt) {
      std::vector<Row> damped = normal;
      for (std::size_t j = 0; j < n; ++j) damped[j][j] *= 1 + damping;
      Row move = gradient;
      if (!solve(damped, move)) {
        damping *= 10;
        continue;
      }
      Row next = x;
      for (std::size_t j = 0; j < n; ++j) next[j] += std::clamp(move[j], -1.0, 1.0);
      put(parameters, next);
      const Row trial = residuals(setups, runs, calibration.noise);
      const double value = loss_of(trial, parameters, next);
      better = value < loss * (1 - 1e-6);
      if (better) {
        x = next;
        r = trial;
        loss = value;
        damping = std::max(1e-6, damping / 5);
      } else {
        damping *= 5;
      }
    }
    if (options.progress) options.progress(round, loss);
    if (!better) break;
  }
  put(parameters, x);
}

std::vector<MeasuredRun> runs_for(const Calibration& calibration, std::span<const MeasuredRun> runs,
                                  const std::vector<RunSetup>& setups) {
  std::vector<MeasuredRun> named;
  for (const MeasuredRun& run : runs) {
    const RunSetup* setup = setup_of(setups, run);
    if (setup == nullptr || setup->set != run.set) continue;
    if (std::ranges::find(calibration.setups, key_of(*setup)) != calibration.setups.end())
      named.push_back(run);
  }
  return named;
}

std::vector<Fold> cross_validate(std::span<const MeasuredRun> runs, int folds,
                                 const FitOptions& options) {
  std::vector<Fold> result;
  for (int fold = 0; fold < folds; ++fold) {
    Fold one{.setups = described_setups()};
    std::vector<MeasuredRun> kept;
    for (std::size_t i = 0; i < runs.size(); ++i)
      (static_cast<int>(i) % folds == fold ? one.runs : kept).push_back(runs[i]);
    for (const Calibration& calibration : calibrations()) {
      fit(one.setups, calibration, kept, options);
    }
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace braid
