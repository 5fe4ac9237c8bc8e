// Compute and communication side by side, worked out by hand.

#include "planner/cost/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace braid {
namespace {

TEST(Overlap, EachGoesAtItsPaceOnceTheOtherIsDone) {
  struct Case {
    const char* fact;
    Overlap overlap;
    double working, sending, together;
  };
  constexpr Case kCases[] = {
      {"nothing disturbs: the longer one", {1, 1}, 2, 3, 3},
      {"nothing to send", {1.5, 2}, 2, 0, 2},
      {"nothing to compute", {1.5, 2}, 0, 3, 3},
      // Compute takes 3 s, in which half as much is sent: 1.5 s of 3 are left.
      {"compute ends first", {1.5, 2}, 2, 3, 4.5},
      // Sending takes 2 s, in which compute does 1 of 6.
      {"communication ends first", {2, 2}, 6, 1, 7},
      {"communication that computes nothing away", {1, 2}, 6, 1, 6},
      {"both end together", {1.5, 2}, 4, 3, 6},
  };
  for (const Case& c : kCases) {
    EXPECT_DOUBLE_EQ(c.overlap.together(c.working, c.sending), c.together) << c.fact;
    EXPECT_DOUBLE_EQ(c.overlap.exposed(c.working, c.sending), c.together - c.working) << c.fact;
  }
}

TEST(Overlap, EqualFactorsAreGalvatronsRule) {
  for (const double factor : {1.0, 1.1, 1.3, 2.0})
    for (const double working : {0.0, 0.5, 1.0, 4.0})
      for (const double sending : {0.0, 0.3, 1.0, 7.0}) {
        const Overlap overlap{factor, factor};
        EXPECT_NEAR(overlap.together(working, sending),
                    std::max(working, sending) + (factor - 1) * std::min(working, sending), 1e-12);
      }
}

TEST(Overlap, IsContinuousAndNeverFalls) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> slower(1, 3), any(0, 5);
  for (int round = 0; round < 500; ++round) {
    const Overlap overlap{slower(engine), slower(engine)};
    const double working = any(engine), sending = any(engine);
    const double time = overlap.together(working, sending);
    constexpr double kStep = 1e-6;
    for (const double more :
         {overlap.together(working + kStep, sending), overlap.together(working, sending + kStep)}) {
      EXPECT_GE(more, time - 1e-12);
      EXPECT_LE(more, time + 9 * kStep) << "no jump";
    }
    EXPECT_GE(time, std::max(working, sending));
    EXPECT_GE(overlap.exposed(working, sending), 0);
    // Where both end together either formula holds.
    const double even = overlap.compute * working / overlap.communication;
    EXPECT_NEAR(overlap.together(working, even), overlap.compute * working, 1e-12);
    EXPECT_NEAR(overlap.together(working, even * (1 + 1e-9)), overlap.compute * working, 1e-7);
    EXPECT_NEAR(overlap.together(working, even * (1 - 1e-9)), overlap.compute * working, 1e-7);
  }
}

TEST(Overlap, WhatMakesNoProgressIsExposed) {
  constexpr Overlap kStands{1, kNoProgress};
  for (const double sending : {0.1, 1.0, 30.0}) {
    EXPECT_NEAR(kStands.exposed(1, sending), sending, 1.001 / kNoProgress);
    EXPECT_LE(kStands.exposed(1, sending), sending);
  }
}

class OverlapOfProfile : public testing::Test {
 protected:
  static void expect(const Overlap& found, double compute, double communication) {
    EXPECT_EQ(found.compute, compute);
    EXPECT_EQ(found.communication, communication);
  }
  Profile profile_;
};

TEST_F(OverlapOfProfile, TheNearestNumberOfRanksSpeaks) {
  profile_.overlaps = {{Collective::all_gather, 2, 1.1, 1.2},
                       {Collective::all_gather, 8, 1.3, 1.4},
                       {Collective::all_reduce, 4, 1.5, 1.6}};
  expect(overlap_of(&profile_, Collective::all_gather, 2, 9, 1), 1.1, 1.2);
  expect(overlap_of(&profile_, Collective::all_gather, 4, 9, 1), 1.1, 1.2);
  expect(overlap_of(&profile_, Collective::all_gather, 6, 9, 1), 1.3, 1.4);
  expect(overlap_of(&profile_, Collective::all_gather, 64, 9, 1), 1.3, 1.4);
  expect(overlap_of(&profile_, Collective::all_reduce, 64, 9, 1), 1.5, 1.6);
}

TEST_F(OverlapOfProfile, AnOperationWaitsLessBesideAShorterBlock) {
  profile_.overlaps = {{Collective::all_gather, 4, 1.2, 5, Seconds(0.008)},
                       {Collective::all_reduce, 4, 1.5, kNoProgress, Seconds(0.008)}};
  const auto gather = [&](double block) {
    return overlap_of(&profile_, Collective::all_gather, 4, 9, block);
  };
  expect(gather(0.008), 1.2, 5);
  expect(gather(0.002), 1.2, 2);
  expect(gather(0), 1.2, 1);
  expect(gather(0.016), 1.2, 5);  // nobody has seen it
  expect(overlap_of(&profile_, Collective::all_reduce, 4, 9, 0.002), 1.5, kNoProgress);
}

TEST_F(OverlapOfProfile, ThenOneFactorForAllThenWhatIsAssumed) {
  profile_.overlaps = {{Collective::all_reduce, 4, 1.5, 1.6}};
  expect(overlap_of(&profile_, Collective::all_gather, 4, 1.25, 1), 1.25, 1.25);
  profile_.overlap_slowdown = 1.15;
  expect(overlap_of(&profile_, Collective::all_gather, 4, 1.25, 1), 1.15, 1.15);
  expect(overlap_of(&profile_, Collective::all_reduce, 4, 1.25, 1), 1.5, 1.6);
  expect(overlap_of(nullptr, Collective::all_reduce, 4, 1.25, 1), 1.25, 1.25);
}

}  // namespace
}  // namespace braid
