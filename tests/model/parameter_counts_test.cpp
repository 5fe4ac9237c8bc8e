// Every shipped model against its published size, here or in its file. Tied heads count once, as
// Hugging Face does.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "planner/core/json.h"
#include "planner/model/model.h"

namespace braid {
namespace {

struct Case {
  const char* name;
  std::int64_t exact;
  double published;  // where only a rounded number is
  double tolerance;  // relative; 0 where the published number is `exact`
  std::int64_t sequence;
};

constexpr Case kExact[] = {
    {"bloom-176b", 176'247'271'424, 0, 0, 2048}, {"bloom-7b1", 7'069'016'064, 0, 0, 2048},
    {"gpt2", 124'439'808, 0, 0, 1024},           {"gpt2-xl", 1'557'611'200, 0, 0, 1024},
    {"llama2-13b", 13'015'864'320, 0, 0, 4096},  {"llama2-70b", 68'976'648'192, 0, 0, 4096},
    {"llama2-7b", 6'738'415'616, 0, 0, 4096},    {"llama3-405b", 405'853'388'800, 0, 0, 8192},
    {"llama3-70b", 70'553'706'496, 0, 0, 8192},  {"llama3-8b", 8'030'261'248, 0, 0, 8192},
    {"mistral-7b", 7'241'732'096, 0, 0, 8192},   {"mixtral-8x7b", 46'702'792'704, 0, 0, 8192},
    {"opt-6.7b", 6'658'473'984, 0, 0, 2048},     {"qwen2.5-7b", 7'615'616'512, 0, 0, 8192},
    {"t5-512-4-48", 737'668'096, 0, 0, 512},  // t5-large
    {"t5-large-48", 737'668'096, 0, 0, 512},
};

// Galvatron (Miao et al., 2022) for the first eight; OPT and GPT-3 round 174.6 up; Megatron's are
// the sizes of Narayanan et al. (2021) and Korthikanti et al. (2022).
constexpr Case kRounded[] = {
    {"bert-huge-32", 671'079'482, 672e6, 0.005, 512},  // without pooler and next-sentence head
    {"bert-huge-48", 985'918'522, 987e6, 0.005, 512},
    {"swin-huge-32", 701'295'860, 701e6, 0.005, 3136},
    {"swin-huge-48", 1'016'243'060, 1016e6, 0.005, 3136},
    {"t5-512-4-32", 502'746'112, 502e6, 0.005, 512},
    {"t5-large-32", 502'746'112, 502e6, 0.005, 512},
    {"vit-huge-32", 632'199'400, 632e6, 0.005, 197},  // 14 × 14 patches of 16 and a class token
    {"vit-huge-48", 947'038'440, 947e6, 0.005, 197},
    {"gpt3-175b", 174'604'259'328, 175e9, 0.005, 2048},
    {"opt-175b", 174'604'468'224, 175e9, 0.005, 2048},
    {"megatron-22b", 22'074'273'792, 22e9, 0.01, 2048},
    {"megatron-530b", 529'600'819'200, 530e9, 0.01, 2048},
    {"megatron-1t", 1'008'038'758'400, 1e12, 0.01, 2048},
};

std::filesystem::path models() {
  return std::filesystem::path(BRAID_SOURCE_DIR) / "configs" / "models";
}

Model shipped(const std::string& name) { return read_model(models() / (name + ".json")); }

TEST(ParameterCounts, AreThePublishedOnes) {
  for (const Case& c : kExact) EXPECT_EQ(parameters(shipped(c.name)), c.exact) << c.name;
}

TEST(ParameterCounts, RoundToThePublishedOnes) {
  for (const Case& c : kRounded) {
    const std::int64_t count = parameters(shipped(c.name));
    EXPECT_EQ(count, c.exact) << c.name;
    EXPECT_NEAR(static_cast<double>(count) / c.published, 1.0, c.tolerance) << c.name;
  }
}

TEST(ParameterCounts, CoverEveryShippedModel) {
  std::set<std::string> pinned, present;
  for (const Case& c : kExact) pinned.insert(c.name);
  for (const Case& c : kRounded) pinned.insert(c.name);
  for (const auto& entry : std::filesystem::directory_iterator(models())) {
    if (read_json(entry.path()).contains("braid_parameters")) {
      EXPECT_NO_THROW(read_model(entry.path())) << entry.path();  // it has as many as it states
    } else {
      present.insert(entry.path().stem().string());
    }
  }
  EXPECT_EQ(present, pinned);
}

TEST(ShippedModels, HaveTheirNamesAndTrainingLengths) {
  const auto check = [](const Case& c) {
    const Model model = shipped(c.name);
    EXPECT_EQ(model.name, c.name);
    EXPECT_EQ(model.sequence, c.sequence) << c.name;
  };
  for (const Case& c : kExact) check(c);
  for (const Case& c : kRounded) check(c);
}

// Small models of the families whose shipped sizes have no exact published count.
struct Known {
  const char* model;
  const char* config;
  std::int64_t exact;
};

constexpr Known kKnown[] = {
    {"bert-base-uncased, masked language model",
     R"({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522,
         "max_position_embeddings": 512, "type_vocab_size": 2})",
     109'514'298},
    {"vit-base-patch16-224",
     R"({"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072, "num_labels": 1000})",
     86'567'656},
    {"swin-tiny-patch4-window7-224",
     R"({"model_type": "swin", "embed_dim": 96, "depths": [2, 2, 6, 2],
         "num_heads": [3, 6, 12, 24], "num_labels": 1000})",
     28'288'354},
    {"t5-v1_1-small: gated, with a head of its own",
     R"({"model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8,
         "num_heads": 6, "vocab_size": 32128, "feed_forward_proj": "gated-gelu",
         "tie_word_embeddings": false})",
     76'961'152},
    {"qwen3-0.6b: head norms and a tied head",
     R"({"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
         "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960,
         "tie_word_embeddings": true})",
     596'049'920},
};

TEST(ParameterCounts, OfWellKnownSmallModels) {
  for (const Known& c : kKnown)
    EXPECT_EQ(parameters(model_from_json(parse_json(c.config, c.model), c.model)), c.exact)
        << c.model;
}

// 6 FLOPs for each parameter and token, but for the lookup, and the scores on top.
TEST(TrainingFlops, AreAboutSixPerParameterAndToken) {
  const Model model = shipped("llama2-7b");
  const double table = 32000.0 * 4096;
  const double norms = (2.0 * 32 + 1) * 4096;
  const double linear = 6.0 * (static_cast<double>(parameters(model)) - table - norms) * 4096;
  const double scores = 3.0 * 32 * 4 * (4096.0 * 4096 / 2) * 4096;
  EXPECT_DOUBLE_EQ(training_flops(model).value(), linear + scores);
}

}  // namespace
}  // namespace braid
