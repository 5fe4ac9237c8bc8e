#pragma once
// How well predictions held: figures over pairs of what was predicted and what was measured.

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace braid {

struct Outturn {
  double predicted = 0;
  double measured = 0;
  // Above zero: predicted too much.
  double error() const { return predicted / measured - 1; }
};

// "+1.2%": with its sign.
std::string format_error(double fraction);

// 1 for the least; equal values share the mean of their ranks.
std::vector<double> ranks_of(std::span<const double> values);

// Spearman's rank correlation: Pearson's of the ranks. None for fewer than two pairs, or where one
// side is all the same.
std::optional<double> spearman(std::span<const Outturn> pairs);

// The mean of |predicted / measured - 1|; none without pairs.
std::optional<double> mean_absolute_error(std::span<const Outturn> pairs);

struct ErrorRange {
  double lowest = 0, highest = 0;
};
std::optional<ErrorRange> error_range(std::span<const Outturn> pairs);

// What choosing one of several cost: its place by measured time (1: none is faster) and by how much
// it exceeds the fastest, as a fraction.
struct Regret {
  int place = 1;
  double excess = 0;
};
Regret regret_of(std::span<const double> measured, std::size_t chosen);

}  // namespace braid
