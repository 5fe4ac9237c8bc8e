// braid bench step: a short run on the CPU, and what it says of mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BenchCommand : public testing::Test {
 protected:
  void SetUp() override {
    // A build without the runtime has the verb to say that it cannot.
    if (run_braid({"bench", "step", "--help"}, folder_.path()).out.find("--micro-batches") ==
        std::string::npos)
      GTEST_SKIP() << "this build has no runtime";
    write_text(folder_ / "tiny.json", R"({"model_type": "llama", "hidden_size": 32,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 32})");
  }
  Outcome step(std::vector<std::string> more) const {
    std::vector<std::string> command = {"bench", "step", "--model", "tiny.json"};
    command.insert(command.end(), more.begin(), more.end());
    return run_braid(command, folder_.path());
  }

  ScratchFolder folder_;
};

TEST_F(BenchCommand, ShowsTheStepItsLimitAndWhereItGoes) {
  const Outcome outcome = step({"--global-batch", "4", "--micro-batches", "2", "--steps", "2",
                                "--warmup-steps", "1", "--peak", "1", "--out", "step.json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
  for (const char* words : {"tokens/s", "MFU", "of the limit", "attention, gradient",
                            "linear, weight gradient", "cross-entropy", "adamw", "between them"})
    EXPECT_THAT(outcome.out, HasSubstr(words));
  const Json json = read_json(folder_ / "step.json");
  // Of each of two blocks and two micro-batches: qkv, out, up and down; once more the head.
  int products = 0;
  double named = 0;
  for (const Json& one : json["operators"]) {
    if (one["name"] == "linear") products = one["calls"];
    named += one["seconds"].get<double>();
  }
  EXPECT_EQ(products, 2 * (2 * 4 + 1));
  EXPECT_GT(named, 0);
  EXPECT_EQ(json["losses"].size(), 4);  // warm-up, two that count and the one that is timed inside
  EXPECT_GT(json["limit"]["products"], 0);
  EXPECT_GT(json["limit"]["attention"], 0);
  EXPECT_GT(json["limit"]["optimizer"], 0);
  EXPECT_NEAR(json["mfu"], json["flops"].get<double>() / json["seconds"].get<double>() / 1e12,
              1e-9);
}

TEST_F(BenchCommand, TellsMistakes) {
  struct Case {
    std::vector<std::string> flags;
    const char *what, *where;
  };
  const Case cases[] = {
      {{}, "--global-batch is missing", "braid bench step"},
      {{"--global-batch", "4", "--micro-batches", "3"}, "3 equal micro-batches", "--micro-batches"},
      {{"--global-batch", "4", "--recompute", "some"}, "'some'", "--recompute"},
      {{"--global-batch", "4", "--ranks", "2"}, "2 ranks", "--ranks"},
      {{"--global-batch", "4", "--out", "nowhere/x.json"}, "'nowhere' does not exist", "--out"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = step(c.flags);
    EXPECT_EQ(outcome.exit, 2) << c.what;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(c.what), HasSubstr(c.where), HasSubstr("fix:")));
  }
}

}  // namespace
}  // namespace braid
