#include "runtime/comm/dry.h"

#include <gtest/gtest.h>

namespace braid::comm {
namespace {

TEST(Dry, CountsWhatARankWouldSendAndTouchesNoMemory) {
  struct Case {
    const char* fact;
    void (*call)(Group&);
    std::int64_t bytes;
  };
  // Rank 1 of 4, null buffers of 8 fp32: 32 bytes.
  const Case cases[] = {
      {"all_reduce: 2 · 3/4 of the buffer",
       [](Group& g) {
         g.all_reduce({nullptr, 8, DataType::fp32}, Reduction::sum, "x").wait();
       },
       48},
      {"reduce_scatter: three blocks",
       [](Group& g) {
         g.reduce_scatter({nullptr, 8, DataType::fp32}, {nullptr, 2, DataType::fp32},
                          Reduction::sum, "x")
             .wait();
       },
       24},
      {"all_gather: the block to three",
       [](Group& g) {
         g.all_gather({nullptr, 8, DataType::bf16}, {nullptr, 32, DataType::bf16}, "x").wait();
       },
       48},
      {"all_to_all: all but its own block",
       [](Group& g) {
         const std::int64_t out[] = {1, 5, 2, 3}, in[] = {0, 5, 0, 0};
         g.all_to_all({nullptr, 11, DataType::fp64}, out, {nullptr, 5, DataType::fp64}, in, "x")
             .wait();
       },
       48},
      {"broadcast: only the root sends",
       [](Group& g) {
         g.broadcast({nullptr, 8, DataType::fp32}, 0, "x").wait();
       },
       0},
      {"exchange: what goes to others",
       [](Group& g) {
         const Outgoing out[] = {{{nullptr, 8, DataType::fp32}, 2},
                                 {{nullptr, 9, DataType::fp32}, 1}};
         const Incoming in[] = {{{nullptr, 9, DataType::fp32}, 1}};
         g.exchange(out, in, "x").wait();
       },
       32},
      {"barrier: nothing", [](Group& g) { g.barrier("x"); }, 0},
      {"a subgroup counts into the same place",
       [](Group& g) {
         const int members[] = {3, 1};
         const auto pair = g.subgroup(members, "pair");
         EXPECT_EQ(pair->rank(), 1);
         pair->all_reduce({nullptr, 8, DataType::fp32}, Reduction::sum, "x").wait();
       },
       32},
  };
  for (const Case& c : cases) {
    const auto traffic = std::make_shared<Traffic>();
    const auto group = dry_group(1, 4, traffic);
    c.call(*group);
    EXPECT_EQ(traffic->bytes, c.bytes) << c.fact;
    EXPECT_EQ(traffic->operations, 1) << c.fact;
  }
}

TEST(DryDeathTest, SplitNeedsMembersThatAnswer) {
  EXPECT_DEATH(dry_group(0, 2)->split(0, 0, "x"), "do not answer");
}

}  // namespace
}  // namespace braid::comm
