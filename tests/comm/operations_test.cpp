#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/comm/in_process.h"
#include "tests/comm/play.h"

namespace braid::comm {
namespace {

using enum OperationKind;
constexpr OperationKind kKinds[] = {all_reduce, reduce_scatter, all_gather,
                                    all_to_all, broadcast,      message};
constexpr DataType kTypes[] = {DataType::int64, DataType::fp64, DataType::fp32, DataType::bf16};

TEST(Operations, EachOfEveryTypeAndGroupSizeGivesWhatTheDefinitionSays) {
  for (const int size : {1, 2, 3, 4, 7}) {
    std::vector<int> everyone(index(size));
    std::iota(everyone.begin(), everyone.end(), 0);
    run_in_process(size, [&](Group& world) {
      std::mt19937_64 random(17);
      for (const OperationKind kind : kKinds) {
        for (const DataType type : kTypes) {
          for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
            for (const std::int64_t count : {0, 1, 5, 1500}) {
              const Step step{.kind = kind,
                              .type = type,
                              .reduction = reduction,
                              .members = everyone,
                              .root = size / 2,
                              .count = count,
                              .blocks = random_blocks(index(size), random),
                              .seed = random()};
              const auto playing = begin(step, world);
              playing->handle.wait();
              EXPECT_EQ(playing->out, expected(step, world.rank()))
                  << name_of(kind) << " of " << count << " " << name_of(type) << " on rank "
                  << world.rank() << " of " << size;
            }
          }
        }
      }
    });
  }
}

TEST(Operations, RandomOnesOnRandomSubgroupsGiveWhatTheDefinitionSays) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    for (const int ranks : {2, 5}) {
      const std::vector<Step> steps = random_steps(seed, ranks, 60);
      run_in_process(ranks, [&](Group& world) {
        const std::vector<Raw> results = play(steps, world);
        for (std::size_t i = 0; i < steps.size(); ++i) {
          const auto& members = steps[i].members;
          const auto found = std::ranges::find(members, world.rank());
          if (found == members.end()) continue;
          EXPECT_EQ(results[i], expected(steps[i], static_cast<int>(found - members.begin())))
              << name_of(steps[i].kind) << " at step " << i << " of seed " << seed;
        }
      });
    }
  }
}

// By hand: 1 + 2⁻⁸ is a tie between 1 and 1 + 2⁻⁷ and would go to the even 1, both times.
TEST(Operations, Bf16IsAddedInFp32AndRoundedOnce) {
  run_in_process(3, [](Group& world) {
    constexpr std::uint16_t kOne = 0x3F80, kTwoToMinus8 = 0x3B80, kOnePlusTwoToMinus7 = 0x3F81;
    std::uint16_t value = world.rank() == 0 ? kOne : kTwoToMinus8;
    world.all_reduce({&value, 1, DataType::bf16}, Reduction::sum, "sum").wait();
    EXPECT_EQ(value, kOnePlusTwoToMinus7);
  });
}

TEST(Operations, SumsAreTakenInTheOrderOfTheSubgroup) {
  run_in_process(3, [](Group& world) {
    const float values[] = {1e8F, -1e8F, 1.0F};
    const auto sum_over = [&](const std::vector<int>& members) {
      const auto group = world.subgroup(members, "order");
      float value = values[world.rank()];
      group->all_reduce({&value, 1, DataType::fp32}, Reduction::sum, "sum").wait();
      return value;
    };
    EXPECT_EQ(sum_over({0, 1, 2}), 1.0F);
    EXPECT_EQ(sum_over({0, 2, 1}), 0.0F);  // 1e8 + 1 is 1e8
  });
}

TEST(Operations, MessagesOfTwoRanksArriveInTheOrderOfSending) {
  run_in_process(2, [](Group& world) {
    constexpr std::int64_t kCount = 20;
    std::vector<std::int64_t> values(kCount);
    std::vector<Handle> handles;
    for (std::int64_t i = 0; i < kCount; ++i) {
      std::int64_t& value = values[index(i)];
      const Buffer buffer{&value, 1, DataType::int64};
      if (world.rank() == 0) {
        value = i;
        handles.push_back(world.send(buffer, 1, "word"));
      } else {
        handles.push_back(world.receive(buffer, 0, "word"));
      }
    }
    while (!handles.empty()) {  // the last first
      handles.back().wait();
      handles.pop_back();
    }
    for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(values[index(i)], i);
  });
}

TEST(Operations, TwoRanksThatBothSendFirstDoNotBlock) {
  run_in_process(2, [](Group& world) {
    const std::int64_t mine = world.rank();
    std::int64_t other = -1;
    world.send({&mine, 1, DataType::int64}, 1 - world.rank(), "word").wait();
    world.receive({&other, 1, DataType::int64}, 1 - world.rank(), "word").wait();
    EXPECT_EQ(other, 1 - world.rank());
  });
}

TEST(Operations, AnExchangeMayHoldMessagesToOneself) {
  for (const int size : {1, 2}) {
    run_in_process(size, [](Group& world) {
      const int self = world.rank();
      const int other = world.size() - 1 - self;
      const double sent[] = {10.0 + self, 20.0 + self};
      double kept = 0, arrived = 0;
      const Outgoing out[] = {{{&sent[0], 1, DataType::fp64}, self},
                              {{&sent[1], 1, DataType::fp64}, other}};
      const Incoming in[] = {{{&kept, 1, DataType::fp64}, self},
                             {{&arrived, 1, DataType::fp64}, other}};
      world.exchange(out, in, "both").wait();
      EXPECT_EQ(kept, 10.0 + self);
      EXPECT_EQ(arrived, 20.0 + other);
    });
  }
}

TEST(Operations, SplitOrdersByKeyThenRankAndLeavesNegativeColoursOut) {
  run_in_process(5, [](Group& world) {
    // rank  0  1  2  3  4
    // color 1 -1  1  0  1
    // key   7  0  3  0  7
    constexpr int kColors[] = {1, -1, 1, 0, 1}, kKeys[] = {7, 0, 3, 0, 7};
    constexpr int kPlaces[] = {1, -1, 0, 0, 2}, kSizes[] = {3, 0, 3, 1, 3};
    const int self = world.rank();
    const auto group = world.split(kColors[self], kKeys[self], "colours");
    ASSERT_EQ(group != nullptr, kPlaces[self] >= 0);
    if (group == nullptr) return;
    EXPECT_EQ(group->rank(), kPlaces[self]);
    EXPECT_EQ(group->size(), kSizes[self]);
  });
}

TEST(Operations, SubgroupsOfSubgroupsAndTheSameMembersTwiceAreGroupsOfTheirOwn) {
  run_in_process(4, [](Group& world) {
    if (world.rank() == 0) return;
    const int members[] = {3, 1, 2};
    const auto three = world.subgroup(members, "three");
    if (world.rank() == 3) return;  // place 0 of the three
    const int inner[] = {2, 1};
    const auto first = three->subgroup(inner, "pair");
    const auto second = three->subgroup(inner, "pair");
    EXPECT_EQ(first->rank(), world.rank() == 2 ? 0 : 1);
    // Numbers count in each group alone: what one has begun does not disturb the other.
    std::int64_t a = world.rank(), b = 10 * a;
    Handle sum_a = first->all_reduce({&a, 1, DataType::int64}, Reduction::sum, "a");
    second->all_reduce({&b, 1, DataType::int64}, Reduction::sum, "b").wait();
    sum_a.wait();
    EXPECT_EQ(a, 3);
    EXPECT_EQ(b, 30);
  });
}

TEST(Operations, AHandleThatIsDroppedDisturbsNobody) {
  run_in_process(3, [](Group& world) {
    for (int round = 0; round < 20; ++round) {
      {
        std::vector<double> gone(100, 1.0);
        const auto forgotten =
            world.all_reduce({gone.data(), 100, DataType::fp64}, Reduction::sum, "dropped");
        const Buffer word{gone.data(), 1, DataType::fp64};
        if (world.rank() == 0) world.send(word, 1, "word").wait();
        if (world.rank() == 1) auto dropped = world.receive(word, 0, "word");
      }
      double value = 1;
      world.all_reduce({&value, 1, DataType::fp64}, Reduction::sum, "kept").wait();
      EXPECT_EQ(value, 3.0);
    }
  });
}

TEST(OperationsDeathTest, WrongArgumentsAreBugs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  struct Case {
    const char* message;
    void (*call)(Group&);
  };
  static double data[4] = {};
  const Case cases[] = {
      {"one block for each rank",
       [](Group& g) {
         g.all_gather({data, 2, DataType::fp64}, {data, 3, DataType::fp64}, "x").wait();
       }},
      {"types differ",
       [](Group& g) {
         g.all_gather({data, 2, DataType::fp64}, {data, 2, DataType::int64}, "x").wait();
       }},
      {"sum up",
       [](Group& g) {
         const std::int64_t one[] = {1};
         g.all_to_all({data, 2, DataType::fp64}, one, {data, 2, DataType::fp64}, one, "x").wait();
       }},
      {"root is not in the group",
       [](Group& g) {
         g.broadcast({data, 2, DataType::fp64}, 1, "x").wait();
       }},
      {"a receiver is not in the group",
       [](Group& g) {
         g.send({data, 2, DataType::fp64}, 1, "x").wait();
       }},
      {"received in the same exchange",
       [](Group& g) {
         g.send({data, 2, DataType::fp64}, 0, "x").wait();
       }},
      {"named twice",
       [](Group& g) {
         const int twice[] = {0, 0};
         g.subgroup(twice, "x");
       }},
  };
  for (const Case& c : cases) EXPECT_DEATH(run_in_process(1, c.call), c.message);
}

TEST(OperationsDeathTest, AGroupIsUsedForWhatItWasFormedFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  static double data[4] = {};
  const int both[] = {0, 1};
  run_in_process(2, [&](Group& world) {
    const auto up = world.subgroup(both, "up", GroupUse::messages_up);
    const Buffer word(data + world.rank(), 1, DataType::fp64);
    if (world.rank() == 0) up->send(word, 1, "x").wait();
    if (world.rank() == 1) up->receive(word, 0, "x").wait();
    world.subgroup(both, "sums", GroupUse::collectives)
        ->all_reduce(word, Reduction::sum, "x")
        .wait();
  });
  const auto misuse = [&](GroupUse use, auto call) {
    run_in_process(2, [&](Group& world) { call(*world.subgroup(both, "group", use)); });
  };
  const Buffer word(data, 1, DataType::fp64);
  EXPECT_DEATH(misuse(GroupUse::messages_up,
                      [&](Group& g) { g.all_reduce(word, Reduction::sum, "x").wait(); }),
               "has no collectives");
  EXPECT_DEATH(
      misuse(GroupUse::messages_up, [&](Group& g) { g.send(word, 1 - g.rank(), "x").wait(); }),
      "not for this message");
  EXPECT_DEATH(
      misuse(GroupUse::collectives, [&](Group& g) { g.send(word, 1 - g.rank(), "x").wait(); }),
      "not for this message");
}

TEST(Operations, MemoryThatWasLetGoOfServesTheNextWhoAsks) {
  run_in_process(2, [](Group& world) {
    auto first = world.allocate(1000);
    const void* const place = first.get();
    ASSERT_NE(place, nullptr);
    const auto second = world.allocate(1000);
    EXPECT_NE(second.get(), place);
    first.reset();
    EXPECT_EQ(world.allocate(1000).get(), place);
    EXPECT_EQ(world.allocate(0), nullptr);
    const int self = world.rank();
    EXPECT_EQ(world.subgroup({&self, 1}, "alone")->allocate(1000), nullptr) << "nobody to share";
  });
}

TEST(Operations, MemoryMayOutliveItsGroup) {
  std::vector<std::shared_ptr<void>> kept(2);
  run_in_process(2, [&](Group& world) {
    kept[index(world.rank())] = world.allocate(8);
    *static_cast<std::int64_t*>(kept[index(world.rank())].get()) = world.rank();
  });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(*static_cast<std::int64_t*>(kept[index(rank)].get()), rank);
}

}  // namespace
}  // namespace braid::comm
