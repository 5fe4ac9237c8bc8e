#include "planner/cost/collective_model.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr double kGigabyte = 1e9;
constexpr CollectiveSite kNode{.per_node = 8, .nodes = 1, .inside = 200e9, .across = 80e9};
constexpr CollectiveSite kCluster{.per_node = 8, .nodes = 16, .inside = 200e9, .across = 80e9};

TEST(CollectiveModel, OneRankIsFree) {
  EXPECT_EQ(collective_time(CollectiveKind::all_reduce, kGigabyte, {.inside = 1e9}), 0);
}

TEST(CollectiveModel, LargeMessagesApproachTheRingsBandwidth) {
  EXPECT_NEAR(collective_time(CollectiveKind::all_reduce, kGigabyte, kNode),
              2 * 7.0 / 8 * kGigabyte / 200e9, 1e-4);
  EXPECT_NEAR(collective_time(CollectiveKind::all_gather, kGigabyte, kNode),
              7.0 / 8 * kGigabyte / 200e9, 1e-4);
}

TEST(CollectiveModel, SmallMessagesTakeTheLatencyProtocol) {
  // LL on NVLink: 6.6 us to start, then twice seven steps around the ring of 0.6 us each.
  EXPECT_NEAR(collective_time(CollectiveKind::all_reduce, 8, kNode), 6.6e-6 + 2 * 7 * 0.6e-6, 1e-8);
}

TEST(CollectiveModel, ATreeSavesSmallMessagesTheWayAroundARing) {
  // 128 members in a ring would take 254 steps of at least 0.6 us, 32 of them across nodes.
  EXPECT_LT(collective_time(CollectiveKind::all_reduce, 8, kCluster), 60e-6);
}

TEST(CollectiveModel, TwoLevelsKeepMostOfTheTrafficInsideNodes) {
  // Eight cards of 10 GB/s: each member reduces an eighth across.
  const double inside = 2 * 7.0 / 8 * kGigabyte / 200e9;
  const double across = 2 * 15.0 / 16 * (kGigabyte / 8) / 10e9;
  EXPECT_LE(collective_time(CollectiveKind::all_reduce, kGigabyte, kCluster),
            inside + across + 1e-3);
}

TEST(CollectiveModel, MoreBytesNeverTakeLess) {
  for (const CollectiveSite& site : {kNode, kCluster}) {
    double before = 0;
    for (double bytes = 1; bytes < 1e11; bytes *= 1.7) {
      const double now = collective_time(CollectiveKind::all_reduce, bytes, site);
      EXPECT_GE(now, before) << bytes;
      before = now;
    }
  }
}

TEST(CollectiveModel, ABusIsSlowerToStart) {
  CollectiveSite bus = kNode;
  bus.bus = true;
  EXPECT_GT(collective_time(CollectiveKind::all_reduce, 8, bus),
            collective_time(CollectiveKind::all_reduce, 8, kNode));
}

}  // namespace
}  // namespace braid
