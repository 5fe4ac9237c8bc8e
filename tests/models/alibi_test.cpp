#include "runtime/models/alibi.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace braid::models {
namespace {

struct Case {
  const char* fact;
  std::int64_t heads;
  std::vector<double> slopes;
};

TEST(Alibi, SlopesAreThoseOfThePaper) {
  const double root = std::sqrt(0.5);
  const Case cases[] = {
      {"one head", 1, {1.0 / 256}},
      {"two", 2, {1.0 / 16, 1.0 / 256}},
      {"eight halve each time",
       8,
       {0.5, 0.25, 0.125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256}},
      {"three: two of two, one of four", 3, {1.0 / 16, 1.0 / 256, 0.25}},
      {"six: four of four, two of eight", 6, {0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256, 0.5, 0.125}},
      {"ten: the last two are of sixteen",
       10,
       {0.5, 0.25, 0.125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256, root, root / 2}},
  };
  for (const Case& c : cases) {
    const at::Tensor slopes = alibi_slopes(c.heads);
    ASSERT_EQ(slopes.size(0), c.heads) << c.fact;
    for (std::size_t i = 0; i < c.slopes.size(); ++i)
      EXPECT_NEAR(slopes.const_data_ptr<double>()[i], c.slopes[i], 1e-15) << c.fact << ", " << i;
  }
}

}  // namespace
}  // namespace braid::models
