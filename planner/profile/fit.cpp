#include "planner/profile/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace braid {

Line fit_line(std::span<const std::pair<double, double>> points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [at, value] : points) {
    n += 1, x += at, y += value, xx += at * at, xy += at * value;
  }
  const double slope = (n * xy - x * y) / (n * xx - x * x);
  return {slope, (y - slope * x) / n};
}

Line fit_relative_line(std::span<const std::pair<double, double>> points) {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [at, value] : points) {
    const double weight = 1 / (value * value);
    w += weight, x += weight * at, y += weight * value;
    xx += weight * at * at, xy += weight * at * value;
  }
  const double slope = (w * xy - x * y) / (w * xx - x * x);
  return {slope, (y - slope * x) / w};
}

double fit_polynomial(std::span<const std::pair<double, double>> points, std::size_t degree,
                      double at) {
  const std::size_t n = degree + 1;
  double scale = 1;  // keeps the powers of x near one
  for (const auto& [x, y] : points) scale = std::max(scale, x);
  std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1));
  for (const auto& [x, y] : points)
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = 0; c < n; ++c)
        rows[r][c] += std::pow(x / scale, static_cast<double>(r + c));
      rows[r][n] += std::pow(x / scale, static_cast<double>(r)) * y;
    }
  for (std::size_t pivot = 0; pivot < n; ++pivot)
    for (std::size_t r = 0; r < n; ++r) {
      if (r == pivot) continue;
      const double factor = rows[r][pivot] / rows[pivot][pivot];
      for (std::size_t c = pivot; c <= n; ++c) rows[r][c] -= factor * rows[pivot][c];
    }
  double value = 0;
  for (std::size_t r = 0; r < n; ++r)
    value += rows[r][n] / rows[r][r] * std::pow(at / scale, static_cast<double>(r));
  return value;
}

namespace {

double relative_deviation(double a, double b) {
  const double larger = std::max(a, b);
  return larger > 0 ? std::abs(a - b) / larger : 0;
}

double median_of(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Neighbouring sizes at one height of an isotonic regression.
struct Plateau {
  std::vector<double> sizes, values;
  double height = 0;  // median of the values
};

void absorb(Plateau& plateau, const Plateau& next) {
  plateau.sizes.insert(plateau.sizes.end(), next.sizes.begin(), next.sizes.end());
  plateau.values.insert(plateau.values.end(), next.values.begin(), next.values.end());
  plateau.height = median_of(plateau.values);
}

}  // namespace

Line fit_robust_line(std::span<const std::pair<double, double>> points) {
  Line best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Line& line) {
    double sum = 0;
    for (const auto& [x, y] : points) sum += relative_deviation(line(x), y);
    constexpr double kTie = 1e-12;  // of equals the first one considered
    if (sum < least - kTie) best = line, least = sum;
  };
  for (std::size_t j = points.size(); j-- > 0;) {
    const auto& [x1, y1] = points[j];
    for (std::size_t i = j; i-- > 0;) {
      const auto& [x0, y0] = points[i];
      const double slope = (y1 - y0) / (x1 - x0);
      const double offset = y1 - slope * x1;
      if (slope >= 0 && offset >= 0) consider({slope, offset});
    }
    if (x1 > 0) consider({y1 / x1, 0});
    consider({0, y1});
  }
  return best;
}

// Pool adjacent violators. With medians it minimises the sum of absolute deviations.
Curve::Curve(Points points) {
  std::ranges::sort(points);
  std::vector<Plateau> plateaus;
  Points medians;  // by size, before sizes share a plateau
  for (std::size_t i = 0; i < points.size();) {
    Plateau next{.sizes = {points[i].first}, .values = {}};
    for (; i < points.size() && points[i].first == next.sizes.front(); ++i)
      next.values.push_back(points[i].second);
    next.height = median_of(next.values);
    medians.emplace_back(next.sizes.front(), next.height);
    while (!plateaus.empty() && plateaus.back().height > next.height) {
      absorb(plateaus.back(), next);
      next = std::move(plateaus.back());
      plateaus.pop_back();
    }
    plateaus.push_back(std::move(next));
  }
  for (const Plateau& plateau : plateaus)
    for (const double size : plateau.sizes) points_.emplace_back(size, plateau.height);
  tail_ = fit_robust_line(std::span(medians).last(std::min(medians.size(), kTailSizes)));
}

double Curve::operator()(double x) const {
  if (x <= points_.front().first) return points_.front().second;
  const auto after = std::ranges::lower_bound(points_, x, {}, &std::pair<double, double>::first);
  if (after == points_.end()) return beyond(x);
  const auto& [x0, y0] = *(after - 1);
  const auto& [x1, y1] = *after;
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

// A last value so far above the line that the sum would fall holds until the line reaches it.
double Curve::beyond(double x) const {
  const auto& [last, value] = points_.back();
  return std::max(value, tail_(x) + (value - tail_(last)) * last / x);
}

std::optional<ForwardFit> fit_forward(const MeasuredLayer& layer, std::int64_t sequence,
                                      std::size_t degree) {
  Points by_batch;
  Points by_length;
  std::set<double> batches;
  std::set<std::int64_t> lengths;
  for (const ComputeSample& s : layer.compute) {
    if (s.split != 1) continue;
    lengths.insert(s.sequence);
    by_length.emplace_back(static_cast<double>(s.sequence), s.forward.value() / s.samples);
    if (s.sequence != sequence) continue;
    batches.insert(s.samples);
    by_batch.emplace_back(s.samples, s.forward.value());
  }
  if (batches.size() > 1) return ForwardFit{false, fit_line(by_batch)};
  if (lengths.size() > degree) {
    const double one = fit_polynomial(by_length, degree, static_cast<double>(sequence));
    return ForwardFit{true, {one, 0}};
  }
  if (batches.size() == 1)
    return ForwardFit{true, {by_batch.front().second / by_batch.front().first, 0}};
  return std::nullopt;
}

}  // namespace braid
