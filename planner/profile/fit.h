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

// Straight lines between measured points. They never fall: where a larger size took less time, that
// was noise. Before the first point its value, behind the last one on along the last line (through
// zero where there is one point only).
class Curve {
 public:
  Curve() = default;
  explicit Curve(Points points);  // in any order; of equal x the mean
  bool empty() const { return points_.empty(); }
  double operator()(double x) const;

 private:
  Points points_;
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
