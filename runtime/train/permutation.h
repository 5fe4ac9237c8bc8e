#pragma once
// Random-looking numbers that are a function of their key: every rank and every layout sees the
// same ones, and nothing has to be stored to resume.

#include <cstdint>

namespace braid::train {

// A hash of 64 bits (the finaliser of SplitMix64, Steele et al., 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
constexpr std::uint64_t mix(std::uint64_t key, std::uint64_t x) { return mix(mix(key) ^ x); }

// A bijection of [0, size), different for each key, without a table: a Feistel network over the
// next even power of two, walked along its cycle until it is back inside (Black and Rogaway, 2002).
// The network's domain is less than four times `size`, so that a walk takes few steps.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t key);
  std::int64_t at(std::int64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t x) const;

  std::uint64_t size_, key_;
  int half_bits_;
};

}  // namespace braid::train
