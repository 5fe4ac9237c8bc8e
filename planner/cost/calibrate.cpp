#include "planner/cost/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace braid {

namespace {

constexpr std::array<CorrectionFactor, 6> kFactors = {&Correction::compute,  &Correction::tensor,
                                                      &Correction::context,  &Correction::sharding,
                                                      &Correction::transfer, &Correction::update};
constexpr std::size_t kOverhead = kFactors.size();
constexpr std::size_t kUnknowns = kFactors.size() + 1;

// Standard deviations.
constexpr double kStepNoise = 0.02;
constexpr double kTermNoise = 0.1;  // of the ratio
constexpr double kFactorDoubt = 0.2;
constexpr double kOverheadDoubt = 0.02;

constexpr double kLeastShare = 0.01;  // of a step, for a term to tell something
constexpr double kLeastFactor = 0.1;
constexpr double kFarthest = 2;  // or its inverse: beyond, a term holds more than its own work
constexpr int kRounds = 8;
constexpr int kMostHalves = 5;
constexpr int kSweeps = 200;

// Six factors, and the overhead in units of a typical step.
using Unknowns = std::array<double, kUnknowns>;

struct Prior {
  double mean = 1, deviation = kFactorDoubt, least = kLeastFactor;
};

Correction correction_of(const Unknowns& x, double typical) {
  Correction correction;
  for (std::size_t i = 0; i < kFactors.size(); ++i) correction.*kFactors[i] = x[i];
  correction.step_overhead = Seconds(x[kOverhead] * typical);
  return correction;
}

double typical_step(const std::vector<CalibrationCase>& cases) {
  std::vector<Weighted> steps;
  steps.reserve(cases.size());
  for (const CalibrationCase& c : cases) steps.push_back({c.measured.value(), 1});
  return weighted_median(std::move(steps));
}

std::array<Prior, kUnknowns> priors_of(const std::vector<CalibrationCase>& cases) {
  std::array<Prior, kUnknowns> priors;
  for (std::size_t i = 0; i < kFactors.size(); ++i) {
    std::vector<Weighted> ratios;
    for (const CalibrationCase& c : cases)
      for (const MeasuredTerm& term : c.terms)
        if (term.factor == kFactors[i] && term.predicted > kLeastShare * c.measured)
          ratios.push_back({term.measured / term.predicted, term.predicted.value()});
    if (ratios.empty()) continue;
    const double ratio = weighted_median(std::move(ratios));
    priors[i].mean = std::clamp(ratio, 1 / kFarthest, kFarthest);
    priors[i].deviation = kTermNoise * priors[i].mean;
  }
  priors[kOverhead] = {0, kOverheadDoubt, 0};
  return priors;
}

double error_of(const CalibrationCase& c, const Correction& correction) {
  return c.price(correction) / c.measured - 1;
}

double variance_of(const CalibrationCase& c) { return kStepNoise * kStepNoise + c.noise * c.noise; }

// A least-squares problem in the change of the unknowns: |J d + r|² with the priors, as its normal
// equations.
struct Normal {
  std::array<std::array<double, kUnknowns>, kUnknowns> matrix{};
  std::array<double, kUnknowns> right{};
};

Normal linearised(const std::vector<CalibrationCase>& cases, const Unknowns& x, double typical,
                  const std::array<Prior, kUnknowns>& priors) {
  Normal normal;
  for (const CalibrationCase& c : cases) {
    const double residual = error_of(c, correction_of(x, typical));
    std::array<double, kUnknowns> slope{};
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      constexpr double kStep = 1e-3;
      Unknowns moved = x;
      moved[i] += kStep;
      slope[i] = (error_of(c, correction_of(moved, typical)) - residual) / kStep;
    }
    const double weight = 1 / variance_of(c);
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      for (std::size_t j = 0; j < kUnknowns; ++j)
        normal.matrix[i][j] += weight * slope[i] * slope[j];
      normal.right[i] -= weight * slope[i] * residual;
    }
  }
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    const double weight = 1 / (priors[i].deviation * priors[i].deviation);
    normal.matrix[i][i] += weight;
    normal.right[i] += weight * (priors[i].mean - x[i]);
  }
  return normal;
}

// Coordinate by coordinate, each within its bound: the problem is convex and tiny.
Unknowns improved(const Normal& normal, const Unknowns& x,
                  const std::array<Prior, kUnknowns>& priors) {
  Unknowns change{};
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      double left = normal.right[i];
      for (std::size_t j = 0; j < kUnknowns; ++j)
        if (j != i) left -= normal.matrix[i][j] * change[j];
      change[i] = std::max(left / normal.matrix[i][i], priors[i].least - x[i]);
    }
  Unknowns next = x;
  for (std::size_t i = 0; i < kUnknowns; ++i) next[i] += change[i];
  return next;
}

double objective(const std::vector<CalibrationCase>& cases, const Unknowns& x, double typical,
                 const std::array<Prior, kUnknowns>& priors) {
  double sum = 0;
  for (const CalibrationCase& c : cases)
    sum += std::pow(error_of(c, correction_of(x, typical)), 2) / variance_of(c);
  for (std::size_t i = 0; i < kUnknowns; ++i)
    sum += std::pow((x[i] - priors[i].mean) / priors[i].deviation, 2);
  return sum;
}

}  // namespace

double weighted_median(std::vector<Weighted> values) {
  double all = 0;
  for (const Weighted& v : values) all += v.weight;
  if (!(all > 0)) return 1;
  std::ranges::sort(values, {}, &Weighted::value);
  double below = 0;
  for (const Weighted& v : values) {
    below += v.weight;
    if (below >= all / 2) return v.value;
  }
  return values.back().value;
}

Correction calibrate(const std::vector<CalibrationCase>& cases) {
  if (cases.empty()) return {};
  const double typical = typical_step(cases);
  const std::array<Prior, kUnknowns> priors = priors_of(cases);
  Unknowns x;
  for (std::size_t i = 0; i < kUnknowns; ++i) x[i] = priors[i].mean;
  double best = objective(cases, x, typical, priors);
  for (int round = 0; round < kRounds; ++round) {
    // The longest path of a pipeline may change on the way: a step that overshoots is halved.
    const Unknowns target = improved(linearised(cases, x, typical, priors), x, priors);
    bool moved = false;
    double share = 1;
    for (int halves = 0; halves < kMostHalves && !moved; ++halves, share /= 2) {
      Unknowns next = x;
      for (std::size_t i = 0; i < kUnknowns; ++i)
        next[i] = std::max(priors[i].least, x[i] + share * (target[i] - x[i]));
      const double value = objective(cases, next, typical, priors);
      if (!(value < best)) continue;
      x = next;
      best = value;
      moved = true;
    }
    if (!moved) break;
  }
  return correction_of(x, typical);
}

double mean_error(const std::vector<CalibrationCase>& cases, const Correction& correction) {
  double sum = 0;
  for (const CalibrationCase& c : cases) sum += std::abs(error_of(c, correction));
  return cases.empty() ? 0 : sum / static_cast<double>(cases.size());
}

}  // namespace braid
