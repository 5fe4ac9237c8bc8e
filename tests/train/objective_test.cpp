// What models are asked for: samples follow from their number alone, whatever the data.

#include "runtime/train/objective.h"

#include <gtest/gtest.h>

#include <sstream>

#include <cmath>
#include <set>

#include "runtime/ops/cross_entropy.h"
#include "runtime/train/corrupted_spans.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"

namespace braid::train {
namespace {

struct Sample {
  std::vector<std::int64_t> inputs, labels;
  bool operator==(const Sample&) const = default;
};
Sample read(const SampleSource& source, std::int64_t number, std::size_t sequence) {
  Sample sample{std::vector<std::int64_t>(sequence), std::vector<std::int64_t>(sequence)};
  source.read(number, sample.inputs, sample.labels);
  return sample;
}

Model bert(std::int64_t sequence = 32) { return tiny_model("bert", 2, sequence); }

TEST(Objective, FollowsFromTheModel) {
  EXPECT_EQ(objective_of(bert()), Objective::masked_tokens);
  EXPECT_EQ(objective_of(tiny_model("vit", 2, 0)), Objective::image_class);
  EXPECT_EQ(objective_of(tiny_model("bloom", 2, 16)), Objective::next_token);
  EXPECT_EQ(objective_of(tiny_model("t5", 2, 16)), Objective::corrupted_spans);
}

TEST(MaskedTokens, AreTheSameForTheSameSeedAndNumber) {
  const std::shared_ptr<const Dataset> data = synthetic(60, 3);
  const SampleSource one = sample_source(bert(), data, {.seed = 5});
  EXPECT_EQ(read(one, 17, 32), read(sample_source(bert(), data, {.seed = 5}), 17, 32));
  EXPECT_NE(read(one, 17, 32), read(sample_source(bert(), data, {.seed = 6}), 17, 32));
  EXPECT_TRUE(one.ignores_labels);
  EXPECT_FALSE(one.length);
}

TEST(MaskedTokens, AreFifteenPercentOfWhichMostAreHidden) {
  const std::shared_ptr<const Dataset> data = synthetic(60, 3);
  const SampleSource source = sample_source(bert(), data, {.seed = 5});
  int asked = 0, hidden = 0, kept = 0, total = 0;
  for (std::int64_t number = 0; number < 1000; ++number) {
    const Sample sample = read(source, number, 32);
    std::vector<std::int64_t> tokens(33);
    data->read(number, tokens);
    int of_sample = 0;
    for (std::size_t i = 0; i < 32; ++i, ++total) {
      if (sample.labels[i] == ops::kIgnoreLabel) {
        EXPECT_EQ(sample.inputs[i], tokens[i]);
        continue;
      }
      ++of_sample;
      EXPECT_EQ(sample.labels[i], tokens[i]);
      hidden += sample.inputs[i] == 60 ? 1 : 0;  // the first id that the data leaves free
      kept += sample.inputs[i] == tokens[i] ? 1 : 0;
    }
    EXPECT_GE(of_sample, 1) << "every sample is asked for something";
    asked += of_sample;
  }
  EXPECT_NEAR(static_cast<double>(asked) / total, 0.15, 0.01);
  EXPECT_NEAR(static_cast<double>(hidden) / asked, 0.8, 0.02);
  EXPECT_NEAR(static_cast<double>(kept) / asked, 0.1 + 0.1 / 60, 0.02);
}

TEST(MaskedTokens, AreOtherOnesInTheNextEpoch) {
  const ScratchFolder folder;
  write_bytes(folder / "text", std::string(33, 'a'));  // one sample
  const Model model = model_from_json({{"model_type", "bert"},
                                       {"hidden_size", 32},
                                       {"num_attention_heads", 4},
                                       {"num_hidden_layers", 2},
                                       {"intermediate_size", 48},
                                       {"vocab_size", 300},
                                       {"max_position_embeddings", 64},
                                       {"braid_sequence", 32}},
                                      "bert");
  const SampleSource source =
      sample_source(model, text_file(folder / "text", 32), {.seed = 1, .mask_token = 299});
  EXPECT_NE(read(source, 0, 32), read(source, 1, 32));
}

TEST(MaskedTokens, NeedAnIdForTheMask) {
  const Mistake none =
      mistake_of("no free id", [] { require_fitting(bert(), *synthetic(61, 3), {}); });
  EXPECT_TRUE(holds(none.what, "none is left to be the mask"));
  EXPECT_TRUE(holds(none.fix, "--mask-token"));
  require_fitting(bert(), *synthetic(61, 3), {.mask_token = 4});
  const Mistake outside = mistake_of("an id outside the vocabulary", [] {
    require_fitting(bert(), *synthetic(60, 3), {.mask_token = 61});
  });
  EXPECT_TRUE(holds(outside.what, "the mask is token 61, the model knows 61"));
}

TEST(Lines, AreSamplesOfTheirOwnLength) {
  const ScratchFolder folder;
  write_bytes(folder / "text", "abc\n\nde\nfghijklmno");
  const std::shared_ptr<const Dataset> data = text_lines(folder / "text", 8);
  EXPECT_EQ(data->samples(), 3);
  EXPECT_EQ(data->length(0), 3);
  EXPECT_EQ(data->length(1), 2);
  EXPECT_EQ(data->length(2), 8) << "a long line is cut";
  std::vector<std::int64_t> tokens(9);
  data->read(1, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{'d', 'e', 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(holds(mistake_of("an empty file",
                               [&] {
                                 write_bytes(folder / "empty", "\n\n");
                                 text_lines(folder / "empty", 8);
                               })
                        .what,
                    "no line"));
}

TEST(Lines, AreFoundWhereverTheyLieInALargeFile) {
  constexpr std::size_t kBlock = 1 << 18;  // that lines are counted by
  std::string text(kBlock - 1, 'x');       // a line that ends with the first block
  text += '\n' + std::string(2 * kBlock + 5, 'y') + "\n\n\n";  // and one that covers others
  std::uint64_t random = 1;
  while (text.size() < 6 * kBlock) {
    random = mix(random);
    text += std::string(random % 97, static_cast<char>('a' + random % 26)) + '\n';
  }
  text += "no end";
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);)
    if (!line.empty()) lines.push_back(line);

  constexpr std::int64_t kSequence = 64;
  const ScratchFolder folder;
  write_bytes(folder / "text", text);
  const std::shared_ptr<const Dataset> data = text_lines(folder / "text", kSequence);
  ASSERT_EQ(data->samples(), std::ssize(lines));
  std::vector<std::int64_t> tokens(kSequence + 1);
  for (std::int64_t i = 0; i < std::ssize(lines); ++i) {
    const std::string& line = lines[static_cast<std::size_t>(i)];
    ASSERT_EQ(data->length(i), std::min(kSequence, std::ssize(line))) << i;
    data->read(i, tokens);
    for (std::size_t j = 0; j < tokens.size(); ++j)
      ASSERT_EQ(tokens[j], j < line.size() ? line[j] : 0) << i << ", " << j;
  }
}

TEST(Lines, GiveLengthsToAMaskedModelAndNoLabelsBehindThemToACausalOne) {
  const ScratchFolder folder;
  write_bytes(folder / "text", "abc\nde");
  const std::shared_ptr<const Dataset> data = text_lines(folder / "text", 16);
  const ObjectiveOptions options{.seed = 1, .mask_token = 0, .shuffle = false};
  const SampleSource masked = sample_source(bert(16), data, options);
  EXPECT_EQ(masked.length(0), 3);
  EXPECT_EQ(masked.length(1), 2);
  const Sample padded = read(masked, 0, 16);
  for (std::size_t i = 3; i < 16; ++i) EXPECT_EQ(padded.labels[i], ops::kIgnoreLabel);

  const SampleSource causal = sample_source(tiny_model("gpt2", 2, 16), data, options);
  EXPECT_FALSE(causal.length);
  EXPECT_TRUE(causal.ignores_labels);
  const Sample line = read(causal, 0, 16);
  EXPECT_EQ(line.labels[0], 'b');
  EXPECT_EQ(line.labels[1], 'c');
  for (std::size_t i = 2; i < 16; ++i) EXPECT_EQ(line.labels[i], ops::kIgnoreLabel);
}

TEST(Images, BecomePatchesInTheOrderOfChannelsRowsAndColumns) {
  const Model model = tiny_model("vit", 2, 0);  // 3 × 3 patches of 4 × 4
  const ImageShape shape = image_shape_of(model);
  EXPECT_EQ(shape.channels, 3);
  EXPECT_EQ(shape.side, 12);
  const std::shared_ptr<const Dataset> data = synthetic_images(shape, 5, 9);
  const SampleSource source = sample_source(model, data, {});
  std::vector<std::uint8_t> patches(9 * 48), values(3 * 12 * 12);
  const std::int64_t label = source.image(4, patches);
  EXPECT_EQ(data->read_image(4, values), label);
  EXPECT_EQ(source.image(4, {}), label);
  // Patch 5 is the second row's last: channel 2, row 4 + 1, column 8 + 3.
  EXPECT_EQ(patches[5 * 48 + 2 * 16 + 1 * 4 + 3], values[2 * 144 + 5 * 12 + 11]);
}

std::string image_bytes(std::uint64_t classes = 3) {
  std::string bytes = "BRDIMG01";
  for (const std::uint64_t number :
       {std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{12}, std::uint64_t{12}, classes})
    bytes += little_endian(number, 4);
  bytes += little_endian(2, 4) + little_endian(0, 4);
  for (int i = 0; i < 2 * 432; ++i) bytes.push_back(static_cast<char>(i % 251));
  return bytes;
}

TEST(Objective, LeavesTheIdsOfMasksAndSentinelsToThem) {
  const Model causal = tiny_model("gpt2", 2, 16), masked = bert(16),
              spans = tiny_model("t5", 2, 16);
  const auto known = [](const Model& model) { return model.type_of(0).shape.vocab; };
  EXPECT_EQ(token_limit(causal, {}), known(causal));
  EXPECT_EQ(token_limit(masked, {}), known(masked) - 1);
  EXPECT_EQ(token_limit(masked, {.mask_token = 3}), known(masked));
  EXPECT_EQ(token_limit(spans, {}), known(spans) - num_sentinels(spans));
  EXPECT_EQ(token_limit(spans, {.mask_token = 0}), 0);
  // Data within the limit fits, whatever it holds.
  for (const Model& model : {causal, masked, spans})
    require_fitting(model, *synthetic(token_limit(model, {}), 1), {});
}

TEST(ImageFiles, HoldClassesAndValues) {
  const ScratchFolder folder;
  write_bytes(folder / "images", image_bytes());
  const auto data = image_file(folder / "images");
  EXPECT_EQ(data->samples(), 2);
  EXPECT_EQ(data->vocabulary(), 3);
  std::vector<std::uint8_t> values(432);
  EXPECT_EQ(data->read_image(0, values), 2);
  EXPECT_EQ(values[250], 250);
  EXPECT_EQ(data->read_image(1, values), 0);
  EXPECT_EQ(values[0], 432 % 251);
  EXPECT_EQ(data->read_image(0, {}), 2);
  require_fitting(tiny_model("vit", 2, 0), *data, {});
}

TEST(ImageFiles, SizesThatOverflowAreRefused) {
  // 2^28 images of 2^36 + 4 bytes: 2^64 + 2^30, which 64 bits take for 2^30.
  const ScratchFolder folder;
  std::string header = "BRDIMG01";
  for (const std::uint64_t number : {1ULL << 28, 256ULL, 1ULL << 14, 1ULL << 14, 3ULL})
    header += little_endian(number, 4);
  write_bytes(folder / "images", header);
  std::filesystem::resize_file(folder / "images", header.size() + (1ULL << 30));
  const Mistake found = mistake_of("an overflow", [&] { image_file(folder / "images"); });
  EXPECT_TRUE(holds(found.what, "need more than 2^63"));
}

TEST(ImageFiles, AreRefusedWhenTheyDoNotFit) {
  const ScratchFolder folder;
  const auto what = [&](const std::string& bytes) {
    write_bytes(folder / "images", bytes);
    return mistake_of("a damaged file", [&] { image_file(folder / "images"); }).what;
  };
  EXPECT_TRUE(holds(what("text"), "no image dataset"));
  EXPECT_TRUE(holds(what(image_bytes().substr(0, 500)), "472 bytes behind the header"));
  EXPECT_TRUE(holds(what(image_bytes(0)), "in 0 classes"));

  const Model vit = tiny_model("vit", 2, 0);
  const Mistake many = mistake_of("too many classes", [&] {
    require_fitting(vit, *synthetic_images({3, 12}, 6, 1), {});
  });
  EXPECT_TRUE(holds(many.what, "6 classes, the model knows 5"));
  const Mistake large = mistake_of("another size", [&] {
    require_fitting(vit, *synthetic_images({3, 24}, 5, 1), {});
  });
  EXPECT_TRUE(holds(large.what, "the model's are 12 × 12"));
  const Mistake tokens =
      mistake_of("tokens for images", [&] { require_fitting(vit, *synthetic(5, 1), {}); });
  EXPECT_TRUE(holds(tokens.what, "the model reads images"));
  const Mistake images = mistake_of("images for tokens", [&] {
    require_fitting(bert(), *synthetic_images({3, 12}, 5, 1), {});
  });
  EXPECT_TRUE(holds(images.what, "the model reads tokens"));
}

}  // namespace
}  // namespace braid::train
