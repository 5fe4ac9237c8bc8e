#include "planner/simulate/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace braid {
namespace {

using namespace literals;

constexpr Bytes kUnlimited{std::numeric_limits<std::int64_t>::max()};

TEST(Allocator, SegmentsByHand) {
  struct Case {
    const char* fact;
    std::vector<Bytes> sizes;
    Bytes allocated, reserved;
  };
  const Case cases[] = {
      {"sizes are multiples of 512 bytes", {Bytes(1), Bytes(513)}, Bytes(512 + 1024), 2_MiB},
      {"small requests share 2 MiB", {1_MiB, 1_MiB}, 2_MiB, 2_MiB},
      {"a third one does not fit", {1_MiB, 1_MiB, Bytes(1)}, 2_MiB + Bytes(512), 4_MiB},
      {"above 1 MiB, 20 MiB are shared", {1_MiB + Bytes(1)}, 1_MiB + Bytes(512), 20_MiB},
      {"two of 9 MiB share one", {9_MiB, 9_MiB}, 18_MiB, 20_MiB},
      // 20 - 19 = 1 MiB is left, too little for a block: it counts as allocated.
      {"a remainder of 1 MiB is not split off", {9_MiB, 5_MiB, 5_MiB}, 20_MiB, 20_MiB},
      {"from 10 MiB on a segment of its own", {10_MiB}, 10_MiB, 10_MiB},
      {"which is a multiple of 2 MiB", {11_MiB}, 12_MiB, 12_MiB},
  };
  for (const Case& c : cases) {
    CachingAllocator allocator;
    for (const Bytes size : c.sizes) EXPECT_TRUE(allocator.allocate(size)) << c.fact;
    EXPECT_EQ(allocator.now().allocated, c.allocated) << c.fact;
    EXPECT_EQ(allocator.now().reserved, c.reserved) << c.fact;
  }
}

TEST(Allocator, FreedBlocksAreUsedAgainAndReservedStays) {
  CachingAllocator allocator;
  const auto first = allocator.allocate(64_MiB);
  allocator.free(*first);
  EXPECT_EQ(allocator.now().allocated, Bytes());
  EXPECT_EQ(allocator.now().reserved, 64_MiB);
  const auto second = allocator.allocate(40_MiB);
  EXPECT_EQ(allocator.address(*second), 0);
  EXPECT_EQ(allocator.now().reserved, 64_MiB);
}

TEST(Allocator, HolesThatAreTooSmallMakeItReserveMore) {
  // Four of 16 MiB in segments of their own, every other one freed: 32 MiB free, yet 20 do not fit.
  CachingAllocator allocator;
  std::vector<CachingAllocator::Handle> blocks;
  blocks.reserve(4);
  for (int i = 0; i < 4; ++i) blocks.push_back(*allocator.allocate(16_MiB));
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  EXPECT_TRUE(allocator.allocate(20_MiB));
  EXPECT_EQ(allocator.now().allocated, 52_MiB);
  EXPECT_EQ(allocator.now().reserved, 84_MiB);
}

TEST(Allocator, NeighboursGrowTogetherWhenFreed) {
  // Three of 20 MiB cut from one segment of 60: freed in any order they are one block again.
  const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    CachingAllocator allocator;
    allocator.free(*allocator.allocate(60_MiB));
    std::vector<CachingAllocator::Handle> blocks;
    blocks.reserve(3);
    for (int i = 0; i < 3; ++i) blocks.push_back(*allocator.allocate(20_MiB));
    EXPECT_EQ(allocator.now().reserved, 60_MiB);
    for (const int i : order) allocator.free(blocks[static_cast<std::size_t>(i)]);
    const auto whole = allocator.allocate(60_MiB);
    EXPECT_EQ(allocator.address(*whole), 0);
    EXPECT_EQ(allocator.now().reserved, 60_MiB);
  }
}

TEST(Allocator, TheSmallestHoleThatFitsIsTaken) {
  CachingAllocator allocator;
  const auto wide = allocator.allocate(64_MiB);
  const auto narrow = allocator.allocate(32_MiB);
  const std::int64_t at = allocator.address(*narrow);
  allocator.free(*wide);
  allocator.free(*narrow);
  EXPECT_EQ(allocator.address(*allocator.allocate(30_MiB)), at);
}

TEST(Allocator, StreamsDoNotShareBlocks) {
  CachingAllocator allocator;
  allocator.free(*allocator.allocate(32_MiB, 0));
  EXPECT_TRUE(allocator.allocate(32_MiB, 1));
  EXPECT_EQ(allocator.now().reserved, 64_MiB);
}

TEST(Allocator, OutOfMemoryGivesFreeSegmentsBackAndThenFails) {
  CachingAllocator allocator(100_MiB);
  const auto first = allocator.allocate(60_MiB);
  EXPECT_FALSE(allocator.allocate(50_MiB));
  EXPECT_EQ(allocator.now().reserved, 60_MiB);
  allocator.free(*first);
  EXPECT_TRUE(allocator.allocate(80_MiB));  // too large for what is cached beside it
  EXPECT_EQ(allocator.now().reserved, 80_MiB);
  EXPECT_EQ(allocator.peak().reserved, 80_MiB);
}

TEST(Allocator, ASegmentInUseIsNotGivenBack) {
  CachingAllocator allocator(100_MiB);
  const auto whole = allocator.allocate(60_MiB);
  allocator.free(*whole);
  const auto part = allocator.allocate(20_MiB);
  EXPECT_FALSE(allocator.allocate(80_MiB));
  allocator.free(*part);
  EXPECT_TRUE(allocator.allocate(80_MiB));
}

// The dumb twin: segments as lists, every search a walk over all of them.
class PlainAllocator {
 public:
  explicit PlainAllocator(Bytes limit) : limit_(limit) {}

  bool allocate(int tensor, Bytes size, int stream) {
    const std::int64_t need = (size.value() + 511) / 512 * 512;
    const bool large = need > (1 << 20);
    if (place(tensor, need, stream, large)) return true;
    std::int64_t segment = need < (10 << 20) ? 20 << 20 : (need + (2 << 20) - 1) >> 21 << 21;
    if (!large) segment = 2 << 20;
    if (reserved() + segment > limit_.value())
      std::erase_if(segments_, [](const Segment& s) {
        return s.blocks.size() == 1 && s.blocks[0].tensor < 0;
      });
    if (reserved() + segment > limit_.value()) return false;
    segments_.push_back({stream, large, next_, {{segment, -1}}});
    next_ += segment;
    return place(tensor, need, stream, large);
  }
  void free(int tensor) {
    for (Segment& s : segments_) {
      for (Block& b : s.blocks)
        if (b.tensor == tensor) b.tensor = -1;
      for (std::size_t i = 0; i + 1 < s.blocks.size();) {
        if (s.blocks[i].tensor < 0 && s.blocks[i + 1].tensor < 0) {
          s.blocks[i].size += s.blocks[i + 1].size;
          s.blocks.erase(s.blocks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        } else {
          ++i;
        }
      }
    }
  }
  std::int64_t reserved() const {
    std::int64_t sum = 0;
    for (const Segment& s : segments_)
      for (const Block& b : s.blocks) sum += b.size;
    return sum;
  }
  std::int64_t allocated() const {
    std::int64_t sum = 0;
    for (const Segment& s : segments_)
      for (const Block& b : s.blocks) sum += b.tensor >= 0 ? b.size : 0;
    return sum;
  }
  std::int64_t address(int tensor) const {
    for (const Segment& s : segments_) {
      std::int64_t at = s.address;
      for (const Block& b : s.blocks) {
        if (b.tensor == tensor) return at;
        at += b.size;
      }
    }
    return -1;
  }

 private:
  struct Block {
    std::int64_t size;
    int tensor;
  };
  struct Segment {
    int stream;
    bool large;
    std::int64_t address;
    std::vector<Block> blocks;
  };

  bool place(int tensor, std::int64_t need, int stream, bool large) {
    Segment* where = nullptr;
    std::size_t which = 0;
    for (Segment& s : segments_) {
      if (s.stream != stream || s.large != large) continue;
      for (std::size_t i = 0; i < s.blocks.size(); ++i) {
        if (s.blocks[i].tensor >= 0 || s.blocks[i].size < need) continue;
        if (where != nullptr && where->blocks[which].size <= s.blocks[i].size) continue;
        where = &s, which = i;
      }
    }
    if (where == nullptr) return false;
    const std::int64_t left = where->blocks[which].size - need;
    where->blocks[which].tensor = tensor;
    if (large ? left <= (1 << 20) : left < 512) return true;
    where->blocks[which].size = need;
    where->blocks.insert(where->blocks.begin() + static_cast<std::ptrdiff_t>(which) + 1,
                         {left, -1});
    return true;
  }

  Bytes limit_;
  std::vector<Segment> segments_;
  std::int64_t next_ = 0;
};

TEST(Allocator, AgreesWithItsPlainTwinOnRandomTraces) {
  std::mt19937_64 engine(3);
  int failures = 0;
  for (int round = 0; round < 60; ++round) {
    const Bytes limit = round % 3 == 0 ? 256_MiB : kUnlimited;
    CachingAllocator allocator(limit);
    PlainAllocator plain(limit);
    std::vector<std::pair<int, CachingAllocator::Handle>> live;
    for (int step = 0; step < 400; ++step) {
      if (live.empty() || engine() % 5 < 3) {
        const double power = std::uniform_real_distribution<double>(4, 25)(engine);
        const Bytes size(static_cast<std::int64_t>(std::exp2(power)));
        const int stream = static_cast<int>(engine() % 2);
        const auto handle = allocator.allocate(size, stream);
        ASSERT_EQ(handle.has_value(), plain.allocate(step, size, stream));
        failures += handle ? 0 : 1;
        if (handle) {
          ASSERT_EQ(allocator.address(*handle), plain.address(step));
          live.emplace_back(step, *handle);
        }
      } else {
        const std::size_t i = engine() % live.size();
        allocator.free(live[i].second);
        plain.free(live[i].first);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
      }
      ASSERT_EQ(allocator.now().reserved.value(), plain.reserved());
      ASSERT_EQ(allocator.now().allocated.value(), plain.allocated());
      ASSERT_LE(allocator.now().requested, allocator.now().allocated);
      ASSERT_LE(allocator.now().allocated, allocator.now().reserved);
      ASSERT_LE(allocator.now().reserved, std::min(limit, allocator.peak().reserved));
    }
    for (const auto& [tensor, handle] : live) allocator.free(handle);
    EXPECT_EQ(allocator.now().allocated, Bytes());
    EXPECT_EQ(allocator.now().requested, Bytes());
  }
  EXPECT_GT(failures, 0);
}

TEST(Allocator, AReplayIsDeterministicAndStopsWhereMemoryEnds) {
  std::vector<MemoryEvent> events;
  for (int i = 0; i < 20; ++i) {
    events.push_back({i, (i % 7 + 1) * Bytes(3'000'000)});
    if (i >= 5) events.push_back({i - 5, Bytes()});
  }
  const ReplayedMemory once = replay(events), again = replay(events);
  EXPECT_FALSE(once.failed);
  EXPECT_EQ(once.peak, again.peak);
  EXPECT_EQ(once.end, again.end);
  const ReplayedMemory tight = replay(events, 30_MiB);
  ASSERT_TRUE(tight.failed);
  EXPECT_LE(tight.peak.reserved, 30_MiB);
}

}  // namespace
}  // namespace braid
