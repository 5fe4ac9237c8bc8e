#include <fmt/core.h>

#include "planner/core/error.h"
#include "runtime/train/data.h"

namespace braid::train {

namespace {

class Synthetic final : public Dataset {
 public:
  Synthetic(std::int64_t vocabulary, std::uint64_t seed)
      : vocabulary_(vocabulary), seed_(seed), follower_(vocabulary, mix(seed)) {}

  std::int64_t samples() const override { return 0; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::string describe() const override {
    return fmt::format("synthetic: endless samples of {} tokens, seed {}", vocabulary_, seed_);
  }

  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    const std::uint64_t key = mix(seed_, static_cast<std::uint64_t>(index));
    const auto size = static_cast<std::uint64_t>(vocabulary_);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::uint64_t random = mix(key, i);
      const bool drawn = i == 0 || random % kNoise == 0;
      // A second hash, so that the choice to draw says nothing about what is drawn.
      tokens[i] =
          drawn ? static_cast<std::int64_t>(mix(random) % size) : follower_.at(tokens[i - 1]);
    }
  }

 private:
  std::int64_t vocabulary_;
  std::uint64_t seed_;
  Permutation follower_;
};

}  // namespace

std::unique_ptr<Dataset> synthetic(std::int64_t vocabulary, std::uint64_t seed) {
  if (vocabulary < 1)
    throw Error({.what = fmt::format("a vocabulary of {} tokens is empty", vocabulary),
                 .where = "synthetic data",
                 .fix = "choose a vocabulary of at least 1 token"});
  return std::make_unique<Synthetic>(vocabulary, seed);
}

}  // namespace braid::train
