#pragma once
// Curves through measured points.

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/profile/profile.h"

namespace braid {

// y = slope · x + offset.
struct Line {
  double slope = 0, offset = 0;
  double operator()(double x) const { return slope * x + offset; }
};
using Points = std::vector<std::pair<double, double>>;

// Least squares; needs two different x.
Line fit_line(std::span<const std::pair<double, double>> points);
// The same of relative errors, for y > 0 over many powers of ten: the largest do not drown the
// others, so that the offset is told by the small ones.
Line fit_relative_line(std::span<const std::pair<double, double>> points);
// Least-squares polynomial of `degree`, evaluated at `at`.
double fit_polynomial(std::span<const std::pair<double, double>> points, std::size_t degree,
                      double at);

// The latency + bandwidth line, slope and offset not below zero, that leaves the least sum of
// relative deviations |line − y| / max(line, y): one deviation counts for 1 at most, so a single
// outlier, even the largest x, does not turn the line. Passes through one or two of the points; x
// ascending, y ≥ 0.
Line fit_robust_line(std::span<const std::pair<double, double>> points);

// Time (or memory) over size through measured points: non-decreasing and continuous.
// - Measurement: the isotonic regression of the points. Where they rise it passes through them;
//   neighbours that fall are noise and share the median of their values.
// - Between sizes: linear.
// - Below the first size: its value, the latency.
// - Beyond the last size: tends to the robust latency + bandwidth line through the last kTailSizes
//   sizes; the deviation of the last value from it fades as 1/x.
class Curve {
 public:
  static constexpr std::size_t kTailSizes = 5;

  Curve() = default;
  explicit Curve(Points points);  // in any order; x may repeat
  bool empty() const { return points_.empty(); }
  double operator()(double x) const;

 private:
  double beyond(double x) const;

  Points points_;  // x ascending, y non-decreasing
  Line tail_;
};

// Seconds of a forward pass as a function of the samples on a device, at one sequence length.
struct ForwardFit {
  bool per_sample = false;  // the line goes through zero: splitting divides it
  Line line;
};
// Several batch sizes at one length give a line over the whole batch's time; several lengths at one
// batch size a polynomial over the length of `degree`, linear in the samples. None where nothing
// was measured that says anything about this length.
std::optional<ForwardFit> fit_forward(const MeasuredLayer& layer, std::int64_t sequence,
                                      std::size_t degree);

}  // namespace braid
