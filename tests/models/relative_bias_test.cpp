#include "runtime/models/relative_bias.h"

#include <gtest/gtest.h>

namespace braid::models {
namespace {

struct Case {
  const char* fact;
  std::int64_t distance;
  bool both_directions;
  std::int64_t bucket;
};

// 32 buckets up to a distance of 128, as published. Backward 16 or 32 are of the past; the first
// half of those of one distance each, then 8 · 16^(i/8) or 16 · 8^(i/16) tokens away.
constexpr Case kCases[] = {
    {"a token sees itself", 0, true, 0},
    {"the one before", -1, true, 1},
    {"the one behind", 1, true, 17},
    {"the last of a single distance", -7, true, 7},
    {"the first of several", -8, true, 8},
    {"11 is nearer than 8 · 16^(1/8) = 11.3", -11, true, 8},
    {"12 is further", -12, true, 9},
    {"16 = 8 · 16^(2/8)", -16, true, 10},
    {"64 = 8 · 16^(6/8)", 64, true, 30},
    {"beyond the furthest", -128, true, 15},
    {"far beyond", 5000, true, 31},
    {"a causal one has all buckets for its past", -15, false, 15},
    {"32 = 16 · 8^(5.33/16)", -32, false, 21},
    {"the causal furthest", -127, false, 31},
    {"what it does not see is near", 9, false, 0},
};

TEST(RelativeBucket, IsTheOneOfT5) {
  for (const Case& c : kCases)
    EXPECT_EQ(relative_bucket(c.distance, c.both_directions, 32, 128), c.bucket) << c.fact;
}

}  // namespace
}  // namespace braid::models
