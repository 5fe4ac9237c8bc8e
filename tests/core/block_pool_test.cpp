#include "planner/core/block_pool.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

using namespace literals;

BlockPool::Block take(BlockPool& pool, Bytes bytes) {
  const BlockPool::Block found = pool.find(bytes);
  if (found == BlockPool::kNone) return pool.make(bytes);
  pool.use(found);
  return found;
}

TEST(BlockPool, LargeBlocksAreWholePages) {
  EXPECT_EQ(BlockPool::rounded(Bytes(1)), Bytes(1));
  EXPECT_EQ(BlockPool::rounded(3_MiB), 3_MiB);
  EXPECT_EQ(BlockPool::rounded(11_MiB), 12_MiB);
  EXPECT_EQ(BlockPool::rounded(12_MiB), 12_MiB);
  EXPECT_EQ(BlockPool::rounded(12_MiB + Bytes(1)), 14_MiB);
}

TEST(BlockPool, WhatCameBackIsHandedOutAgain) {
  BlockPool pool;
  const BlockPool::Block first = take(pool, 10_MiB), second = take(pool, 10_MiB);
  EXPECT_NE(first, second);
  pool.give_back(first);
  EXPECT_EQ(take(pool, 10_MiB), first);
  pool.give_back(first);
  pool.give_back(second);
  EXPECT_EQ(take(pool, 9_MiB), first) << "the first of two alike";
  EXPECT_EQ(pool.made(), 20_MiB);
}

TEST(BlockPool, ABlockThatIsTooLargeIsLeftToThoseWhoNeedIt) {
  BlockPool pool;
  const BlockPool::Block large = take(pool, 40_MiB);
  pool.give_back(large);
  const BlockPool::Block small = take(pool, 20_MiB);
  EXPECT_NE(small, large);
  EXPECT_EQ(take(pool, 33_MiB), large) << "not more than a quarter larger than its pages";
  pool.give_back(small);
  EXPECT_EQ(take(pool, 18_MiB), small);
}

TEST(BlockPool, TheSmallestThatSuitsIsTaken) {
  BlockPool pool;
  const BlockPool::Block larger = take(pool, 22_MiB), smaller = take(pool, 20_MiB);
  pool.give_back(larger);
  pool.give_back(smaller);
  EXPECT_EQ(take(pool, 19_MiB), smaller);
  EXPECT_EQ(take(pool, 19_MiB), larger);
}

}  // namespace
}  // namespace braid
