#include "planner/explain/accuracy.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/core/error.h"

namespace braid {

std::string format_error(double fraction) { return fmt::format("{:+.1f}%", 100 * fraction); }

std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double mean = static_cast<double>(first + 1 + end) / 2;
    for (; first < end; ++first) ranks[order[first]] = mean;
  }
  return ranks;
}

std::optional<double> spearman(std::span<const Outturn> pairs) {
  std::vector<double> predicted, measured;
  predicted.reserve(pairs.size());
  measured.reserve(pairs.size());
  for (const Outturn& pair : pairs) {
    predicted.push_back(pair.predicted);
    measured.push_back(pair.measured);
  }
  predicted = ranks_of(predicted);
  measured = ranks_of(measured);
  const double mean = static_cast<double>(pairs.size() + 1) / 2;
  double both = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    both += (predicted[i] - mean) * (measured[i] - mean);
    first += (predicted[i] - mean) * (predicted[i] - mean);
    second += (measured[i] - mean) * (measured[i] - mean);
  }
  if (!(first > 0 && second > 0)) return std::nullopt;
  return both / std::sqrt(first * second);
}

std::optional<double> mean_absolute_error(std::span<const Outturn> pairs) {
  if (pairs.empty()) return std::nullopt;
  double sum = 0;
  for (const Outturn& pair : pairs) sum += std::abs(pair.error());
  return sum / static_cast<double>(pairs.size());
}

std::optional<ErrorRange> error_range(std::span<const Outturn> pairs) {
  if (pairs.empty()) return std::nullopt;
  const auto [low, high] = std::ranges::minmax(pairs, {}, &Outturn::error);
  return ErrorRange{low.error(), high.error()};
}

Regret regret_of(std::span<const double> measured, std::size_t chosen) {
  internal_check(chosen < measured.size(), "the chosen plan is among those measured");
  const double own = measured[chosen];
  const auto faster = std::ranges::count_if(measured, [&](double other) { return other < own; });
  return {static_cast<int>(faster) + 1, own / std::ranges::min(measured) - 1};
}

}  // namespace braid
