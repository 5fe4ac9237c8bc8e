#pragma once
// From measured steps to a profile's correction: what each term of the cost model takes against
// what the samples say.

#include <functional>
#include <string>
#include <vector>

#include "planner/core/units.h"
#include "planner/profile/profile.h"

namespace braid {

using CorrectionFactor = double Correction::*;

// One term of one step, on one device.
struct MeasuredTerm {
  CorrectionFactor factor;
  Seconds predicted;  // without a correction
  Seconds measured;
};

// One run.
struct CalibrationCase {
  Seconds measured;                                 // of a step
  double noise = 0;                                 // of that, a standard deviation, relative
  std::function<Seconds(const Correction&)> price;  // what a corrected profile says of it
  std::vector<MeasuredTerm> terms = {};             // where the run recorded them
};

// The median of values by weight; 1 without any weight.
struct Weighted {
  double value = 0, weight = 0;
};
double weighted_median(std::vector<Weighted> values);

// The most probable correction when a step's time is predicted to about 2%, beside the noise of
// what was measured; a factor whose term was measured lies within about 10% of the median ratio of
// that term (weighted by the seconds it was predicted to take, in steps of which it is at least 1%;
// at most twice or half: what goes beyond is waiting for other ranks), any other within about 20%
// of 1; and the overhead of a step is about 2% of it at most. Least squares over relative errors
// with these priors, by Gauss and Newton; no factor falls below 0.1, and no overhead below zero.
// What no run depends on stays as it is. Without cases: no correction.
Correction calibrate(const std::vector<CalibrationCase>& cases);

// The mean of |predicted / measured - 1| under a correction.
double mean_error(const std::vector<CalibrationCase>& cases, const Correction& correction);

}  // namespace braid
