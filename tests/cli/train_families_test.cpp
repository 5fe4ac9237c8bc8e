// From a config.json to training, for families whose data is not the next token of a text alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;

const Json kBert = {{"model_type", "bert"},    {"hidden_size", 32},
                    {"num_hidden_layers", 2},  {"num_attention_heads", 4},
                    {"intermediate_size", 64}, {"vocab_size", 300},
                    {"braid_sequence", 16},    {"max_position_embeddings", 64}};
const Json kVit = {{"model_type", "vit"},      {"hidden_size", 32},       {"num_hidden_layers", 2},
                   {"num_attention_heads", 4}, {"intermediate_size", 64}, {"image_size", 12},
                   {"patch_size", 4},          {"num_labels", 5}};
const Json kSwin = {{"model_type", "swin"}, {"embed_dim", 16},  {"depths", {2, 2}},
                    {"num_heads", {4, 4}},  {"image_size", 16}, {"patch_size", 2},
                    {"window_size", 4},     {"num_labels", 5}};
const Json kBloom = {{"model_type", "bloom"}, {"hidden_size", 32}, {"n_layer", 2},
                     {"n_head", 4},           {"vocab_size", 300}, {"braid_sequence", 16}};
const Json kOpt = {{"model_type", "opt"},           {"hidden_size", 32},   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},      {"ffn_dim", 64},       {"vocab_size", 300},
                   {"max_position_embeddings", 64}, {"braid_sequence", 16}};

const Json kT5 = {{"model_type", "t5"}, {"d_model", 32},        {"d_kv", 8},
                  {"num_layers", 2},    {"num_heads", 4},       {"d_ff", 64},
                  {"vocab_size", 300},  {"braid_sequence", 32}, {"braid_decoder_sequence", 16}};

class TrainedFamily : public testing::Test {
 protected:
  void SetUp() override {
    if (run_braid({"train", "--help"}, folder_.path()).out.find("--dry-run") == std::string::npos)
      GTEST_SKIP() << "this build has no runtime";
  }
  void plan(const Json& model) const {
    write_text(folder_ / "family.json", model.dump());
    const Outcome outcome =
        run_braid({"plan", "--model", "family.json", "--cluster", "cluster.json", "--global-batch",
                   "8", "--precision", "fp32", "--out", "plan.json"},
                  folder_.path());
    ASSERT_EQ(outcome.exit, 0) << outcome.error;
  }
  Outcome train(std::vector<std::string> more) const {
    std::vector<std::string> command = {"train", "--plan", "plan.json", "--steps", "2"};
    command.insert(command.end(), more.begin(), more.end());
    return run_braid(command, folder_.path());
  }

  InputFolder folder_;
};

TEST_F(TrainedFamily, TrainsOnSyntheticDataAsPlanned) {
  for (const Json& model : {kBert, kVit, kSwin, kBloom, kOpt, kT5}) {
    plan(model);
    const Outcome outcome = train({});
    EXPECT_EQ(outcome.exit, 0) << model.at("model_type") << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("step 2/2")) << model.at("model_type");
    const Outcome dry = train({"--dry-run"});
    EXPECT_EQ(dry.exit, 0) << model.at("model_type") << dry.error;
  }
}

TEST_F(TrainedFamily, BertHidesTokensOfATextAndPadsItsLines) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a line of " + std::to_string(i) + "\n";
  write_text(folder_ / "text", text);
  plan(kBert);
  for (const char* data : {"text:text", "lines:text"}) {
    const Outcome outcome = train({"--data", data});
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("step 2/2"));
  }
}

TEST_F(TrainedFamily, T5TellsSpansOfATextAndOfItsLines) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a line of " + std::to_string(i) + "\n";
  write_text(folder_ / "text", text);
  plan(kT5);
  for (const char* data : {"text:text", "lines:text"}) {
    const Outcome outcome = train({"--data", data});
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("step 2/2"));
  }
  EXPECT_EQ(train({"--data", "text:text", "--mask-token", "290"}).exit, 0);
  EXPECT_THAT(train({"--data", "text:text", "--mask-token", "257"}).error,
              HasSubstr("ids 255 to 257 stand for spans"));
}

TEST_F(TrainedFamily, SaysWhatDataItNeeds) {
  write_text(folder_ / "text", std::string(2000, 'a'));
  plan(kVit);
  EXPECT_THAT(train({"--data", "text:text"}).error, HasSubstr("the model reads images"));
  EXPECT_THAT(train({"--data", "images:text"}).error, HasSubstr("no image dataset"));
  Json bytes = kBert;
  bytes["vocab_size"] = 256;
  plan(bytes);
  EXPECT_THAT(train({"--data", "text:text"}).error, HasSubstr("none is left to be the mask"));
  EXPECT_EQ(train({"--data", "text:text", "--mask-token", "7"}).exit, 0);
  EXPECT_THAT(train({"--data", "text:text", "--mask-token", "256"}).error,
              HasSubstr("choose an id from 0 to 255"));
}

}  // namespace
}  // namespace braid
