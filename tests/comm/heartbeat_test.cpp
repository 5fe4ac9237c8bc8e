#include "runtime/comm/heartbeat.h"

#include <gtest/gtest.h>

namespace braid::comm {
namespace {

using std::chrono::milliseconds;

TEST(Heartbeat, SilenceIsToldOnce) {
  std::atomic<int> told = 0;
  {
    const Heartbeat heartbeat(milliseconds(40), [&] { ++told; });
    std::this_thread::sleep_for(milliseconds(400));
  }
  EXPECT_EQ(told, 1);
}

TEST(Heartbeat, WhoBeatsIsLeftAlone) {
  std::atomic<int> told = 0;
  Heartbeat heartbeat(milliseconds(2000), [&] { ++told; });
  for (int i = 0; i < 30; ++i) {
    heartbeat.beat();
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace braid::comm
