#pragma once
// Questions to the planner drawn at random: a model, a cluster, a batch, a memory limit and a
// restricted space. The same seed gives the same question on every machine.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "planner/search/search.h"

namespace braid {

// What `search` is asked. Rooflines price it: no profile is needed.
struct Question {
  std::uint64_t seed = 0;
  Model model;
  Cluster cluster;
  std::int64_t global_batch = 1;
  Bytes memory_limit;  // for one device; zero: all it has
  SpaceOptions space;
};

// Uniform draws from a 64-bit generator, without the standard distributions, whose results differ
// between libraries.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  int number(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11U) * 0x1p-53;
  }
  double log_real(double low, double high);
  bool chance(double probability) { return real(0, 1) < probability; }
  template <class T>
  const T& any(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(number(0, static_cast<int>(list.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

Question random_question(std::uint64_t seed);

// Everything that reproduces the question, as the JSON files and flags of `braid plan`.
std::string describe(const Question& question);

SearchOptions options_of(const Question& question);

}  // namespace braid
