// Plans written by hand, without prediction and certificate: priced by 'braid price', and by every
// verb that takes a plan.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/plan/plan.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr const char* kByHand = R"({
  "format": "braid.plan", "version": 1, "model": "model.json", "cluster": "cluster.json",
  "global_batch": 8, "micro_batches": 4,
  "stages": [
    {"strategies": [{"layers": 1, "tp": 2}, {"layers": 2, "tp": 2, "recompute": "full"}]},
    {"strategies": [{"layers": 3, "tp": 2}]}
  ]
})";

class PriceCommand : public testing::Test {
 protected:
  PriceCommand() { write_text(folder_ / "hand.json", kByHand); }
  Outcome run(const std::vector<std::string>& words) const {
    return run_braid(words, folder_.path());
  }
  Json price(const std::string& file) const {
    return json_of(run({"price", file, "--format", "json"}));
  }

  InputFolder folder_;
};

TEST_F(PriceCommand, PricesAPlanWrittenByHandAndCompletesIt) {
  const Outcome text = run({"price", "hand.json", "--out", "priced.json"});
  EXPECT_EQ(text.exit, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("Where the time goes"));
  EXPECT_THAT(text.out, HasSubstr("physics"));
  EXPECT_EQ(text.error, "");
  const Json answer = price("hand.json");
  EXPECT_EQ(answer.at("plan"), read_json(folder_ / "priced.json"));
  EXPECT_GT(answer.at("predicted").at("iteration_seconds"), 0);
  EXPECT_TRUE(answer.at("predicted").at("gap").is_null()) << "nothing was searched";
}

TEST_F(PriceCommand, GivesAPlansOwnPriceAgain) {
  make_plan(folder_.path());
  Json plan = read_json(folder_ / "plan.json");
  const Json predicted = plan.at("prediction");
  plan.erase("prediction");
  plan.erase("certificate");
  write_text(folder_ / "bare.json", plan.dump());
  EXPECT_EQ(price("bare.json").at("plan").at("prediction"), predicted);
  EXPECT_EQ(price("plan.json").at("plan"), read_json(folder_ / "plan.json"));
}

TEST_F(PriceCommand, OtherVerbsPriceWhatTheyRead) {
  for (const char* verb : {"explain", "check", "simulate"}) {
    const Outcome outcome = run({verb, "hand.json"});
    EXPECT_EQ(outcome.exit, 0) << verb << outcome.error;
    EXPECT_EQ(outcome.error, "") << verb;
  }
  EXPECT_TRUE(json_of(run({"check", "hand.json", "--format", "json"}))
                  .at("stored_iteration_seconds")
                  .is_null());
  EXPECT_EQ(run({"train", "hand.json", "--dry-run"}).exit, 0);
}

TEST_F(PriceCommand, EndsWithThreeWhereThePlanDoesNotFit) {
  Json plan = parse_json(kByHand, "by hand");
  plan["memory_limit"] = 1 << 20;
  write_text(folder_ / "hand.json", plan.dump());
  EXPECT_EQ(run({"price", "hand.json", "--out", "priced.json"}).exit, 3);
  EXPECT_TRUE(read_json(folder_ / "priced.json").contains("prediction"));
}

TEST_F(PriceCommand, NamesWhatIsWrongInAPlanWrittenByHand) {
  const auto with = [&](const char* pointer, const Json& value) {
    Json plan = parse_json(kByHand, "by hand");
    plan[Json::json_pointer(pointer)] = value;
    write_text(folder_ / "wrong.json", plan.dump());
    const Outcome outcome = run({"price", "wrong.json"});
    EXPECT_EQ(outcome.exit, 2) << pointer;
    return outcome.error;
  };
  EXPECT_THAT(with("/model", "nowhere.json"), HasSubstr("nowhere.json"));
  EXPECT_THAT(with("/stages/0/strategies/0/tp", 16), HasSubstr("do not fill the 2 devices"));
  EXPECT_THAT(with("/stages/0/strategies/1/layers", 3), HasSubstr("end at layer 7 of 6"));
  EXPECT_THAT(with("/stages/0/strategies/0/recompute", "full"), HasSubstr("'embedding'"));
  EXPECT_THAT(with("/cost", "measured"), HasSubstr("names no profile"));
  EXPECT_THAT(with("/micro_batches", 3), HasSubstr("do not divide a global batch of 8"));
}

}  // namespace
}  // namespace braid
