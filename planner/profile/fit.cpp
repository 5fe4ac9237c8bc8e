#include "planner/profile/fit.h"

#include <algorithm>
#include <cmath>
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

Curve::Curve(Points points) {
  std::ranges::sort(points);
  for (std::size_t i = 0; i < points.size();) {
    const double x = points[i].first;
    double sum = 0;
    std::size_t end = i;
    for (; end < points.size() && points[end].first == x; ++end) sum += points[end].second;
    const double mean = sum / static_cast<double>(end - i);
    points_.emplace_back(x, points_.empty() ? mean : std::max(mean, points_.back().second));
    i = end;
  }
}

double Curve::operator()(double x) const {
  if (x <= points_.front().first) return points_.front().second;
  if (points_.size() == 1) return points_.front().second * x / points_.front().first;
  const auto after = std::ranges::lower_bound(points_, x, {}, &std::pair<double, double>::first);
  const auto end = after == points_.end() ? after - 1 : after;
  const auto& [x0, y0] = *(end - 1);
  const auto& [x1, y1] = *end;
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
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
