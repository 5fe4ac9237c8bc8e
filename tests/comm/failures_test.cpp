// Ranks that disagree, stay away or die: nobody hangs, and the message says who and where.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <thread>

#include "runtime/comm/in_process.h"

namespace braid::comm {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

void sum(Group& group, std::int64_t count, std::string_view name) {
  std::vector<float> values(static_cast<std::size_t>(count));
  group.all_reduce({values.data(), count, DataType::fp32}, Reduction::sum, name).wait();
}

void gather(Group& group, std::string_view name) {
  const float value = 1;
  std::vector<float> all(static_cast<std::size_t>(group.size()));
  group.all_gather({&value, 1, DataType::fp32}, {all.data(), group.size(), DataType::fp32}, name)
      .wait();
}

// The CommErrors of all ranks, each caught where it arose.
std::vector<std::string> errors_of(int ranks, const std::function<void(Group&)>& rank_main) {
  std::mutex mutex;
  std::vector<std::string> errors;
  run_in_process(
      ranks,
      [&](Group& world) {
        try {
          rank_main(world);
        } catch (const CommError& error) {
          const std::scoped_lock lock(mutex);
          errors.emplace_back(error.what());
        }
      },
      milliseconds(10'000));
  return errors;
}

TEST(Failures, EveryMemberLearnsOfADisagreementAndOfBothSides) {
  struct Case {
    const char* fact;
    std::function<void(Group&)> odd, others;  // rank 1, and the rest
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"other kinds",
       [](Group& g) { gather(g, "loss"); },
       [](Group& g) { sum(g, 1, "loss"); },
       {"all_gather \"loss\" (number 1 of group \"world\": 1 fp32)",
        "all_reduce \"loss\" (number 1 of group \"world\": sum of 1 fp32)", "rank 1"}},
      {"other names",
       [](Group& g) { sum(g, 1, "loss"); },
       [](Group& g) { sum(g, 1, "norm"); },
       {"all_reduce \"loss\"", "all_reduce \"norm\"", "rank 1"}},
      {"other counts",
       [](Group& g) { sum(g, 3, "loss"); },
       [](Group& g) { sum(g, 4, "loss"); },
       {"sum of 3 fp32", "sum of 4 fp32"}},
      {"other reductions",
       [](Group& g) {
         float value = 0;
         g.all_reduce({&value, 1, DataType::fp32}, Reduction::max, "loss").wait();
       },
       [](Group& g) { sum(g, 1, "loss"); },
       {"maximum of 1 fp32", "sum of 1 fp32"}},
      {"other roots",
       [](Group& g) {
         float value = 0;
         g.broadcast({&value, 1, DataType::fp32}, 1, "seed").wait();
       },
       [](Group& g) {
         float value = 0;
         g.broadcast({&value, 1, DataType::fp32}, 0, "seed").wait();
       },
       {"from the group's rank 0", "from the group's rank 1"}},
      {"other blocks",
       [](Group& g) {
         const float in[] = {1, 2, 3};
         float out[3];
         const std::int64_t one[] = {1, 1, 1};
         g.all_to_all({in, 3, DataType::fp32}, one, {out, 3, DataType::fp32}, one, "tokens").wait();
       },
       [](Group& g) {
         const float in[] = {1, 2, 3, 4};
         float out[3];
         const std::int64_t one[] = {1, 1, 1}, two[] = {1, 2, 1};
         g.all_to_all({in, 4, DataType::fp32}, two, {out, 3, DataType::fp32}, one, "tokens").wait();
       },
       {"sends 2 elements, rank 1 expects 1, in all_to_all \"tokens\" (number 1"}},
  };
  for (const Case& c : cases) {
    const auto errors = errors_of(3, [&](Group& world) {
      world.barrier("begin");
      (world.rank() == 1 ? c.odd : c.others)(world);
    });
    EXPECT_THAT(errors, SizeIs(3)) << c.fact;
    for (const std::string& text : c.says) EXPECT_THAT(errors, Each(HasSubstr(text))) << c.fact;
  }
}

TEST(Failures, AMessageMustBeWhatItsReceiverExpects) {
  const auto errors = errors_of(2, [](Group& world) {
    float values[4] = {};
    if (world.rank() == 0) {
      world.send({values, 4, DataType::fp32}, 1, "activation").wait();
      world.send({values, 4, DataType::fp32}, 1, "activation").wait();
    } else {
      world.receive({values, 4, DataType::fp32}, 0, "activation").wait();
      std::this_thread::sleep_for(milliseconds(20));
      world.receive({values, 2, DataType::fp32}, 0, "gradient").wait();
    }
  });
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("rank 1 is at message \"gradient\" (number 1 of group \"world\": 2"),
                    HasSubstr("rank 0 at message \"activation\" (number 1 of group \"world\": 4")));
}

std::string failure_of(int ranks, const std::function<void(Group&)>& rank_main,
                       milliseconds timeout) {
  try {
    run_in_process(ranks, rank_main, timeout);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no failure";
}

TEST(Failures, ATimeoutNamesWhoIsMissingAndInWhat) {
  const std::string text = failure_of(
      4,
      [](Group& world) {
        world.barrier("begin");
        const int members[] = {3, 2, 1};
        if (world.rank() == 0) return;
        const auto group = world.subgroup(members, "three");
        if (world.rank() == 3) {
          sum(*group, 1, "loss");
        } else {
          std::this_thread::sleep_for(milliseconds(300));
        }
      },
      milliseconds(50));
  EXPECT_THAT(text,
              HasSubstr("rank 3 waited 50 ms for ranks 2 and 1 in all_reduce \"loss\" (number "
                        "1 of group \"three\""));
}

TEST(Failures, AMessageThatNeverComesTimesOut) {
  const std::string text = failure_of(
      2,
      [](Group& world) {
        float value = 0;
        if (world.rank() == 1) {
          world.receive({&value, 1, DataType::fp32}, 0, "activation").wait();
        } else {
          std::this_thread::sleep_for(milliseconds(300));
        }
      },
      milliseconds(50));
  EXPECT_THAT(text,
              HasSubstr("rank 1 waited 50 ms for rank 0 in message \"activation\" (number 0"));
}

TEST(Failures, ARankThatEndsEarlyIsNamedAtOnce) {
  const std::string text = failure_of(
      3,
      [](Group& world) {
        if (world.rank() != 1) sum(world, 1, "loss");
      },
      milliseconds(60'000));
  EXPECT_THAT(text, HasSubstr("rank 1 has ended, and rank "));
  EXPECT_THAT(text, HasSubstr("all_reduce \"loss\" (number 0 of group \"world\""));
}

TEST(Failures, WhatWasSentBeforeTheEndStillArrives) {
  run_in_process(2, [](Group& world) {
    std::int64_t word = world.rank() == 0 ? 42 : 0;
    const Buffer buffer{&word, 1, DataType::int64};
    if (world.rank() == 0) return world.send(buffer, 1, "word").wait();
    std::this_thread::sleep_for(milliseconds(30));
    world.receive(buffer, 0, "word").wait();
    EXPECT_EQ(word, 42);
  });
}

TEST(Failures, TheCauseIsRethrownAndTheOthersHearOfItAtOnce) {
  std::mutex mutex;
  std::vector<std::string> echoes;
  const auto rank_main = [&](Group& world) {
    world.barrier("begin");
    if (world.rank() == 2) throw std::out_of_range("layer 9 of 8");
    const int members[] = {0, 1};
    try {
      sum(world, 1, "loss");
    } catch (const CommError& error) {
      const std::scoped_lock lock(mutex);
      echoes.emplace_back(error.what());
    }
    // Later operations fail too, where the rank that is gone is no member.
    EXPECT_THROW(sum(*world.subgroup(members, "two"), 1, "loss"), CommError);
    throw std::runtime_error("an echo");
  };
  EXPECT_THROW(run_in_process(3, rank_main, milliseconds(60'000)), std::out_of_range);
  EXPECT_THAT(echoes, SizeIs(2));
  EXPECT_THAT(echoes, Each(HasSubstr("rank 2 has failed: layer 9 of 8")));
}

// Elsewhere a rank would write into the wrong piece of the others' memory.
TEST(Failures, RanksThatAskForMemoryInAnotherOrderAreFoundOut) {
  const auto gather_into = [](Group& world, void* out) {
    const std::int64_t mine = world.rank();
    world.all_gather({&mine, 1, DataType::int64}, {out, world.size(), DataType::int64}, "weights")
        .wait();
  };
  const auto errors = errors_of(3, [&](Group& world) {
    const auto first = world.allocate(100);
    gather_into(world, first.get());
    const auto second = world.allocate(100);
    gather_into(world, world.rank() == 1 ? first.get() : second.get());
  });
  EXPECT_THAT(errors, SizeIs(3));
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("in piece 0"), HasSubstr("in piece 1"))));
}

}  // namespace
}  // namespace braid::comm
