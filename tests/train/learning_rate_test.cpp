#include "runtime/train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/files.h"

namespace braid::train {
namespace {

using enum LearningRateKind;
using enum DecayShape;

constexpr LearningRate kConstant{constant, linear, 6.0, 0.0, 2, 0, 10};
constexpr LearningRate kCosine{cosine, linear, 10.0, 2.0, 4, 0, 12};
constexpr LearningRate kWsd{wsd, linear, 10.0, 2.0, 1, 4, 10};
constexpr LearningRate kSqrt{wsd, one_minus_sqrt, 10.0, 2.0, 1, 4, 10};

TEST(LearningRate, ByHand) {
  struct Case {
    const char* fact;
    LearningRate rate;
    std::int64_t step;
    double expected;
  };
  const double far = 4 * std::sqrt(2.0);  // 8 · √(1/2)
  const Case cases[] = {
      {"two steps of warm-up: a third", kConstant, 0, 2.0},
      {"two steps of warm-up: two thirds", kConstant, 1, 4.0},
      {"step w has the peak", kConstant, 2, 6.0},
      {"a constant rate does not end", kConstant, 1'000'000, 6.0},
      {"cosine warms up: a fifth", kCosine, 0, 2.0},
      {"cosine warms up: four fifths", kCosine, 3, 8.0},
      {"cosine starts at the peak", kCosine, 4, 10.0},
      {"cosine, a quarter: 2 + 8 (1 + √½) / 2", kCosine, 6, 6 + far / 2},
      {"cosine is halfway in the middle", kCosine, 8, 6.0},
      {"cosine, three quarters: 2 + 8 (1 - √½) / 2", kCosine, 10, 6 - far / 2},
      {"cosine, the last step: 2 + 4 (1 + cos 7π/8)", kCosine, 11, 2.3044818700},
      {"cosine ends at the minimum", kCosine, 12, 2.0},
      {"cosine stays at the minimum", kCosine, 1'000'000, 2.0},
      {"wsd warms up", kWsd, 0, 5.0},
      {"wsd is stable", kWsd, 1, 10.0},
      {"wsd is stable up to its decay", kWsd, 6, 10.0},
      {"wsd, linear: a quarter", kWsd, 7, 8.0},
      {"wsd, linear: half", kWsd, 8, 6.0},
      {"wsd, linear: three quarters", kWsd, 9, 4.0},
      {"wsd ends at the minimum", kWsd, 10, 2.0},
      {"wsd, 1-sqrt: its decay starts at the peak", kSqrt, 6, 10.0},
      {"wsd, 1-sqrt: a quarter is already half", kSqrt, 7, 6.0},
      {"wsd, 1-sqrt: half", kSqrt, 8, 10 - far},
      {"wsd, 1-sqrt ends at the minimum", kSqrt, 10, 2.0},
      {"without warm-up the first step has the peak", {cosine, linear, 10, 2, 0, 0, 4}, 0, 10.0},
      {"without warm-up, halfway", {cosine, linear, 10, 2, 0, 0, 4}, 2, 6.0},
      {"wsd without decay falls at the end", {wsd, linear, 10, 2, 0, 0, 4}, 3, 10.0},
      {"wsd without decay, beyond the end", {wsd, linear, 10, 2, 0, 0, 4}, 4, 2.0},
      {"wsd that only decays", {wsd, linear, 10, 2, 0, 4, 4}, 1, 8.0},
      {"all warm-up", {cosine, linear, 10, 2, 4, 0, 4}, 3, 8.0},
      {"all warm-up, beyond the end", {cosine, linear, 10, 2, 4, 0, 4}, 4, 2.0},
      {"one step", {cosine, linear, 10, 2, 0, 0, 1}, 0, 10.0},
  };
  for (const Case& c : cases) EXPECT_NEAR(c.rate.at(c.step), c.expected, 1e-9) << c.fact;
}

TEST(LearningRate, NeverRisesAfterItsWarmup) {
  for (const LearningRate& rate : {kConstant, kCosine, kWsd, kSqrt})
    for (std::int64_t step = rate.warmup_steps; step < 20; ++step)
      EXPECT_LE(rate.at(step + 1), rate.at(step)) << name_of(rate) << " at " << step;
}

TEST(LearningRate, ParsesItsOwnNames) {
  for (const char* name : {"constant", "cosine", "wsd", "wsd:1-sqrt"})
    EXPECT_EQ(name_of(parse_learning_rate(name, "--schedule")), name);
  EXPECT_EQ(parse_learning_rate("wsd:1-sqrt", "").decay, one_minus_sqrt);
  EXPECT_EQ(parse_learning_rate("cosine", "").kind, cosine);
}

TEST(LearningRate, AnUnknownKindListsTheKnown) {
  for (const char* name : {"", "cosin", "wsd:", "Cosine "}) {
    const Mistake found = mistake_of(name, [&] { parse_learning_rate(name, "--schedule"); });
    EXPECT_EQ(found.where, "--schedule");
    EXPECT_EQ(found.fix, "choose one of constant, cosine, wsd, wsd:1-sqrt");
  }
  EXPECT_TRUE(holds(mistake_of("a misspelling", [] { parse_learning_rate("cosin", ""); }).what,
                    "did you mean 'cosine'?"));
}

TEST(LearningRate, ChecksItsNumbers) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  struct Case {
    const char* fact;
    LearningRate rate;
    const char* what;  // empty: sound
  };
  const Case cases[] = {
      {"sound", kWsd, ""},
      {"a constant rate needs no end", {constant, linear, 1, 0, 5, 0, 0}, ""},
      {"warm-up and decay fill the run", {wsd, linear, 1, 0, 5, 5, 10}, ""},
      {"a peak of zero", {constant, linear, 0, 0, 0, 0, 1}, "trains nothing"},
      {"an infinite peak", {constant, linear, kInfinity, 0, 0, 0, 1}, "trains nothing"},
      {"a peak that is no number", {constant, linear, kNan, 0, 0, 0, 1}, "trains nothing"},
      {"a minimum above the peak", {cosine, linear, 1, 2, 0, 0, 9}, "the minimum 2"},
      {"a negative minimum", {cosine, linear, 1, -1, 0, 0, 9}, "the minimum -1"},
      {"a minimum that is no number", {cosine, linear, 1, kNan, 0, 0, 9}, "the minimum nan"},
      {"a negative warm-up", {cosine, linear, 1, 0, -1, 0, 9}, "neither can be negative"},
      {"a negative decay", {wsd, linear, 1, 0, 0, -1, 9}, "neither can be negative"},
      {"a warm-up beyond the end", {cosine, linear, 1, 0, 10, 0, 9}, "do not fit into 9 steps"},
      {"warm-up and decay overlap", {wsd, linear, 1, 0, 5, 5, 9}, "do not fit into 9 steps"},
      {"a sum of 64 bits", {wsd, linear, 1, 0, kHuge, kHuge, 9}, "do not fit into 9 steps"},
  };
  for (const Case& c : cases) {
    const std::string what(c.what);
    if (what.empty()) {
      EXPECT_NO_THROW(check(c.rate, "run.json")) << c.fact;
      continue;
    }
    const Mistake found = mistake_of(c.fact, [&] { check(c.rate, "run.json"); });
    EXPECT_TRUE(holds(found.what, what)) << c.fact;
    EXPECT_EQ(found.where, "run.json");
  }
}

}  // namespace
}  // namespace braid::train
