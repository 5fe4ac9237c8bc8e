#include "runtime/train/data.h"

#include <fmt/core.h>

#include <bit>

#include "planner/core/error.h"

namespace braid::train {

namespace {

// Four would do for large sizes. Small ones need more: at 6 rounds, one of 5 places is still met 9%
// too often.
constexpr int kRounds = 10;

}  // namespace

void Dataset::read(std::int64_t /*index*/, std::span<std::int64_t> /*tokens*/) const {
  internal_check(false, "tokens are read of datasets that hold tokens");
}

std::int64_t Dataset::read_image(std::int64_t /*index*/, std::span<std::uint8_t> /*values*/) const {
  internal_check(false, "images are read of datasets that hold images");
  return 0;
}

Permutation::Permutation(std::int64_t size, std::uint64_t key)
    : size_(static_cast<std::uint64_t>(size)), key_(key) {
  internal_check(size > 0, "a permutation has elements");
  half_bits_ = (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2;
}

std::uint64_t Permutation::encrypt(std::uint64_t x) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = x >> half_bits_;
  std::uint64_t right = x & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (mix(key_ + round, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::int64_t Permutation::at(std::int64_t index) const {
  auto x = static_cast<std::uint64_t>(index);
  internal_check(x < size_, "a permutation's index lies inside");
  do x = encrypt(x);
  while (x >= size_);
  return static_cast<std::int64_t>(x);
}

std::int64_t SampleOrder::at(std::int64_t position) const {
  internal_check(position >= 0, "a position in training is not negative");
  if (samples_ == 0) return position;
  const std::int64_t epoch = position / samples_;
  const std::int64_t index = position % samples_;
  if (!shuffle_) return index;
  return Permutation(samples_, mix(seed_, static_cast<std::uint64_t>(epoch))).at(index);
}

std::int64_t samples_in(std::int64_t tokens, std::int64_t sequence, const std::string& where) {
  if (sequence < 1)
    throw Error({.what = fmt::format("a sequence of {} tokens cannot be trained on", sequence),
                 .where = where,
                 .fix = "choose a sequence of at least 1 token"});
  if (tokens <= sequence)
    throw Error(
        {.what = fmt::format("{} tokens do not make one sample of {} tokens and a last label",
                             tokens, sequence),
         .where = where,
         .fix = tokens < 2 ? "choose a file with more tokens"
                           : fmt::format("choose a file with more tokens, or a sequence of at "
                                         "most {}",
                                         tokens - 1)});
  return (tokens - 1) / sequence;
}

}  // namespace braid::train
