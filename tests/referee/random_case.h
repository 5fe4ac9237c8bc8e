#pragma once
// Random clusters, models and legal plans, small enough for the referee.

#include <cstdint>
#include <random>

#include "planner/plan/plan.h"

namespace braid::referee {

class CaseDice {
 public:
  explicit CaseDice(std::uint64_t seed) : engine_(seed) {}

  // 1 to `most_nodes` nodes of unequal size, types of device and links; equal ones in one entry or
  // apart.
  Cluster cluster(int most_devices, int most_nodes);
  // A decoder or encoder of `blocks` blocks, with grouped queries and experts now and then.
  Model model(int blocks);
  // Every legal plan of a shape has a chance.
  Plan plan();

  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }
  template <class T>
  const T& any(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(number(0, static_cast<int>(list.size()) - 1))];
  }

 private:
  bool choose(Plan& plan);

  std::mt19937_64 engine_;
};

// Every way to split this layer over `devices` devices that breaks no rule.
std::vector<Strategy> legal_strategies(const LayerShape& shape, int devices,
                                       std::int64_t micro_batch);

}  // namespace braid::referee
