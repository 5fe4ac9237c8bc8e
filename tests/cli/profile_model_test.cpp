// braid profile model: from a machine's profile to one that plans, and where it does not hold.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/plan/plan.h"
#include "planner/profile/profile.h"
#include "tests/cli/program.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ProfileModel : public testing::Test {
 protected:
  void SetUp() override {
    // A build without the runtime has the verb to say that it cannot measure.
    if (run_braid({"profile", "model", "--help"}, folder_.path()).out.find("--hardware") ==
        std::string::npos)
      GTEST_SKIP() << "this build has no runtime";
    const Json model = {{"model_type", "llama"},
                        {"hidden_size", 32},
                        {"num_attention_heads", 4},
                        {"num_key_value_heads", 2},
                        {"num_hidden_layers", 2},
                        {"intermediate_size", 48},
                        {"vocab_size", 61},
                        {"max_position_embeddings", 64},
                        {"tie_word_embeddings", false},
                        {"hidden_act", "silu"}};
    write_text(folder_ / "model.json", model.dump());
    write_hardware({});
  }

  // A machine of two ranks; without facts it holds anywhere.
  void write_hardware(const std::vector<Fact>& facts) const {
    Profile hardware;
    hardware.name = "by hand";
    hardware.cluster = tiny_cluster(2);
    hardware.precision = Precision::fp32;
    hardware.taken_on = facts;
    write_text(folder_ / "hardware.json", to_json(hardware).dump());
  }
  static std::vector<std::string> command() {
    return {"profile", "model", "--ranks", "2",          "--model",       "model.json",     "--seq",
            "16",      "--out", "p.json",  "--hardware", "hardware.json", "--global-batch", "4"};
  }
  std::size_t journal_lines() const {
    const std::filesystem::path journal = folder_ / "p.json.journal";
    if (!std::filesystem::exists(journal)) return 0;
    const std::string text = read_text(journal);
    return static_cast<std::size_t>(std::ranges::count(text, '\n'));
  }

  ScratchFolder folder_;
};

TEST_F(ProfileModel, TimesEveryLayerAndPlansWithThat) {
  const Outcome outcome = run_braid(command(), folder_.path());
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"embedding", "decoder", "head", "megatron 2", "ulysses 2", "noise",
                            "8 splits and micro-batches of each layer timed"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "p.json.journal"));
  const Profile profile = read_profile(folder_ / "p.json");
  EXPECT_EQ(profile.layers.size(), 3U);
  EXPECT_TRUE(profile.model.has_value());
  EXPECT_FALSE(profile.updates.empty());

  const Outcome planned = run_braid(
      {"plan", "--profile", "p.json", "--global-batch", "4", "--out", "plan.json"}, folder_.path());
  ASSERT_EQ(planned.exit, 0) << planned.error;
  const Plan plan = read_plan(folder_ / "plan.json");
  EXPECT_EQ(plan.cost, CostKind::measured);
  EXPECT_EQ(plan.precision, Precision::fp32);
  EXPECT_GT(plan.prediction.iteration, Seconds(0));
}

TEST_F(ProfileModel, AKilledRunGoesOn) {
  StartedBraid first(command(), folder_.path());
  // A heading and one measurement of nine.
  for (int look = 0; journal_lines() < 2 && look < 10'000; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  first.kill();
  EXPECT_EQ(first.wait().exit, 128 + 9);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "p.json"));
  const std::size_t kept = journal_lines();
  ASSERT_GE(kept, 2U);

  const Outcome second = run_braid(command(), folder_.path());
  ASSERT_EQ(second.exit, 0) << second.error;
  EXPECT_THAT(second.error, HasSubstr("going on from p.json.journal, which has " +
                                      std::to_string(kept - 1) + " measurements"));
  EXPECT_EQ(read_profile(folder_ / "p.json").layers.size(), 3U);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "p.json.journal"));
}

TEST_F(ProfileModel, AMachineThatDiffersIsRefused) {
  write_hardware({{"backend", "in_process"}, {"ranks", "8"}});
  const auto refusal = AllOf(HasSubstr("this profile does not hold here"),
                             HasSubstr("ranks: '8' then, '2' now"), HasSubstr("fix:"));
  const Outcome measured = run_braid(command(), folder_.path());
  EXPECT_EQ(measured.exit, 2);
  EXPECT_THAT(measured.error, refusal);
  EXPECT_THAT(measured.error, HasSubstr("hardware.json: taken_on"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "p.json"));
  // A comparison would hold predictions of one machine against another.
  const Outcome compared =
      run_braid({"compare", "--model", "model.json", "--profile", "hardware.json", "--cost",
                 "roofline", "--global-batch", "4", "--seq", "16", "--precision", "fp32",
                 "--algorithms", "dp", "--more", "0", "--out", "results.json"},
                folder_.path());
  EXPECT_EQ(compared.exit, 2);
  EXPECT_THAT(compared.error, refusal);
}

}  // namespace
}  // namespace braid
