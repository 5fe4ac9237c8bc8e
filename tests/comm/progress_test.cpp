#include "runtime/comm/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Operation sum(std::string name, std::int64_t number) {
  return {.kind = OperationKind::all_reduce,
          .name = std::move(name),
          .group = "dp",
          .number = number,
          .type = DataType::fp32,
          .count = 8};
}

ProgressLog log_of(const std::vector<Operation>& operations) {
  ProgressLog log;
  for (const Operation& operation : operations) log.begin("dp", operation);
  return log;
}

TEST(Progress, ALogSurvivesItsText) {
  ProgressLog log = log_of({sum("a", 0), sum("two\nlines\tand a tab", 1)});
  log.begin("other", sum("c", 5));
  const ProgressLog copy = ProgressLog::from_text(log.to_text());
  EXPECT_EQ(copy.to_text(), log.to_text());
  EXPECT_EQ(copy.begun("dp"), 2);
  EXPECT_EQ(copy.begun("other"), 6);
  EXPECT_EQ(copy.begun("nobody"), 0);
  EXPECT_EQ(copy.at("dp", 0), log.at("dp", 0));
  EXPECT_THAT(copy.at("dp", 1).value_or(""), HasSubstr("\"two lines and a tab\""));
  EXPECT_EQ(copy.at("dp", 2), std::nullopt);
  EXPECT_THAT(copy.latest(), HasSubstr("\"c\" (number 5"));
  EXPECT_EQ(ProgressLog::from_text(ProgressLog().to_text()).latest(), "");
}

TEST(Progress, OnlyTheLastOfAChannelAreKept) {
  ProgressLog log;
  for (std::int64_t i = 0; i < 100; ++i) log.begin("dp", sum("a", i));
  EXPECT_EQ(log.begun("dp"), 100);
  EXPECT_TRUE(log.at("dp", 99).has_value());
  EXPECT_FALSE(log.at("dp", 1).has_value());
}

TEST(Progress, TheDiagnosisSaysWhoIsElsewhere) {
  const Waiting waiting{
      .rank = 4, .members = {4, 5, 6, 7, 9}, .channel = "dp", .operation = sum("grad", 1)};
  const std::map<int, ProgressLog> logs = {
      {5, log_of({sum("loss", 0)})},                                  // behind
      {6, log_of({sum("loss", 0), sum("norm", 1)})},                  // at another operation
      {7, log_of({sum("loss", 0), sum("grad", 1), sum("next", 2)})},  // beyond
  };
  const Mistake mistake = diagnosis(waiting, logs, std::chrono::milliseconds(500));
  EXPECT_THAT(
      mistake.what,
      AllOf(HasSubstr("rank 4 waited 500 ms in all_reduce \"grad\" (number 1 of group \"dp\""),
            HasSubstr("rank 5 has not begun it, and last began all_reduce \"loss\" (number 0"),
            HasSubstr("rank 6 is at all_reduce \"norm\" (number 1"),
            HasSubstr("rank 9 does not answer"), Not(HasSubstr("rank 7"))));
}

TEST(Progress, WhereAllHaveBegunTheDeviceOrItsLinkIsToBlame) {
  const Waiting waiting{.rank = 0, .members = {0, 1}, .channel = "dp", .operation = sum("grad", 0)};
  const Mistake mistake =
      diagnosis(waiting, {{1, log_of({sum("grad", 0)})}}, std::chrono::milliseconds(500));
  EXPECT_THAT(mistake.what, HasSubstr("all its ranks have begun it"));
  EXPECT_THAT(mistake.fix, HasSubstr("link"));
}

// Hosts run ahead of their GPUs: all have begun an operation to which one GPU never comes.
TEST(Progress, TheDiagnosisSaysWhatDevicesAreAt) {
  const Waiting waiting{.rank = 0, .members = {0, 1}, .channel = "dp", .operation = sum("grad", 0)};
  std::map<int, ProgressLog> logs = {{0, log_of({sum("grad", 0)})}, {1, log_of({sum("grad", 0)})}};
  logs.at(0).device_is("waits in it");
  logs.at(1).device_is("is still at\nwhat is ahead");
  logs[1] = ProgressLog::from_text(logs.at(1).to_text());
  const Mistake mistake = diagnosis(waiting, logs, std::chrono::milliseconds(500));
  EXPECT_THAT(mistake.what, AllOf(HasSubstr("; the GPU of rank 0 waits in it"),
                                  HasSubstr("; the GPU of rank 1 is still at what is ahead")));
}

}  // namespace
}  // namespace braid::comm
