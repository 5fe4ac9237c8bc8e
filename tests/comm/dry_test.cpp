#include "runtime/comm/dry.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::comm {
namespace {

TEST(Dry, CountsWhatARankWouldSendAndTouchesNoMemory) {
  struct Case {
    const char* fact;
    void (*call)(Group&);
    std::int64_t bytes;
    OperationKind kind;
    std::int64_t whole;
  };
  // Rank 1 of 4, null buffers of 8 fp32: 32 bytes.
  const Case cases[] = {
      {"all_reduce: 2 · 3/4 of the buffer",
       [](Group& g) {
         g.all_reduce({nullptr, 8, DataType::fp32}, Reduction::sum, "x").wait();
       },
       48, OperationKind::all_reduce, 32},
      {"reduce_scatter: three blocks",
       [](Group& g) {
         g.reduce_scatter({nullptr, 8, DataType::fp32}, {nullptr, 2, DataType::fp32},
                          Reduction::sum, "x")
             .wait();
       },
       24, OperationKind::reduce_scatter, 32},
      {"all_gather: the block to three",
       [](Group& g) {
         g.all_gather({nullptr, 8, DataType::bf16}, {nullptr, 32, DataType::bf16}, "x").wait();
       },
       48, OperationKind::all_gather, 64},
      {"all_to_all: all but its own block",
       [](Group& g) {
         const std::int64_t out[] = {1, 5, 2, 3}, in[] = {0, 5, 0, 0};
         g.all_to_all({nullptr, 11, DataType::fp64}, out, {nullptr, 5, DataType::fp64}, in, "x")
             .wait();
       },
       48, OperationKind::all_to_all, 88},
      {"broadcast: only the root sends",
       [](Group& g) {
         g.broadcast({nullptr, 8, DataType::fp32}, 0, "x").wait();
       },
       0, OperationKind::broadcast, 32},
      {"exchange: what goes to others",
       [](Group& g) {
         const Outgoing out[] = {{{nullptr, 8, DataType::fp32}, 2},
                                 {{nullptr, 9, DataType::fp32}, 1}};
         const Incoming in[] = {{{nullptr, 9, DataType::fp32}, 1}};
         g.exchange(out, in, "x").wait();
       },
       32, OperationKind::message, 32},
      {"barrier: nothing", [](Group& g) { g.barrier("x"); }, 0, OperationKind::barrier, 0},
      {"a subgroup counts into the same place",
       [](Group& g) {
         const int members[] = {3, 1};
         const auto pair = g.subgroup(members, "pair");
         EXPECT_EQ(pair->rank(), 1);
         pair->all_reduce({nullptr, 8, DataType::fp32}, Reduction::sum, "x").wait();
       },
       32, OperationKind::all_reduce, 32},
  };
  for (const Case& c : cases) {
    const auto traffic = std::make_shared<Traffic>();
    const auto group = dry_group(1, 4, traffic);
    c.call(*group);
    EXPECT_EQ(traffic->bytes, c.bytes) << c.fact;
    EXPECT_EQ(traffic->operations, 1) << c.fact;
    const std::map<OperationKind, Traffic::Volume> once = {{c.kind, {1, c.whole}}};
    EXPECT_EQ(traffic->by_kind, once) << c.fact;
  }
}

TEST(DryDeathTest, SplitNeedsMembersThatAnswer) {
  EXPECT_DEATH(dry_group(0, 2)->split(0, 0, "x"), "do not answer");
}

// Rank 1 of 3 in the host's memory.
class Echo : public testing::Test {
 protected:
  using Words = std::vector<std::int64_t>;
  static ConstBuffer from(const Words& words) {
    return {words.data(), static_cast<std::int64_t>(words.size()), DataType::int64};
  }
  static Buffer to(Words& words) {
    return {words.data(), static_cast<std::int64_t>(words.size()), DataType::int64};
  }
  const std::unique_ptr<Group> group_ = echo_group(1, 3);
};

TEST_F(Echo, TheOthersGiveWhatThisRankGave) {
  Words out(6);
  group_->all_gather(from({7, 8}), to(out), "x").wait();
  EXPECT_EQ(out, Words({7, 8, 7, 8, 7, 8}));
}

TEST_F(Echo, AGatherIntoItsOwnPlaceFillsTheOthers) {
  Words out = {0, 5, 0};
  group_->all_gather({&out[1], 1, DataType::int64}, to(out), "x").wait();
  EXPECT_EQ(out, Words({5, 5, 5}));
}

TEST_F(Echo, SumsAreNotMultiplied) {
  Words out(1);
  group_->reduce_scatter(from({4, 5, 6}), to(out), Reduction::sum, "x").wait();
  EXPECT_EQ(out, Words({4}));
  Words same = {4, 5};
  group_->all_reduce(to(same), Reduction::sum, "x").wait();
  EXPECT_EQ(same, Words({4, 5}));
  group_->broadcast(to(same), 0, "x").wait();
  EXPECT_EQ(same, Words({4, 5}));
}

TEST_F(Echo, AnExchangeBringsBackAsMuchAsFits) {
  Words out(2, -1);
  const std::int64_t gives[] = {1, 1, 2}, takes[] = {0, 1, 1};
  group_->all_to_all(from({1, 2, 3, 4}), gives, to(out), takes, "x").wait();
  EXPECT_EQ(out, Words({1, 2}));
  Words more(5, -1);
  const std::int64_t takes_more[] = {2, 1, 2};
  group_->all_to_all(from({1, 2, 3, 4}), gives, to(more), takes_more, "x").wait();
  EXPECT_EQ(more, Words({1, 2, 3, 4, -1}));
}

TEST_F(Echo, AMessageComesBack) {
  const Words first = {1, 2};
  Words back(2), none(1, -1);
  const Outgoing out[] = {{from(first), 2}};
  const Incoming in[] = {{to(back), 0}, {to(none), 2}};
  group_->exchange(out, in, "x").wait();
  EXPECT_EQ(back, first);
  EXPECT_EQ(none, Words({-1})) << "nothing was given for it";
}

TEST_F(Echo, ASubgroupEchoesToo) {
  const int members[] = {2, 1};
  const auto pair = group_->subgroup(members, "pair");
  EXPECT_EQ(pair->rank(), 1);
  Words out(2);
  pair->all_gather(from({9}), to(out), "x").wait();
  EXPECT_EQ(out, Words({9, 9}));
  group_->barrier("x");
}

}  // namespace
}  // namespace braid::comm
