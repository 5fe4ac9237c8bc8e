// Spans that are cut out of a text: nothing is lost, and what is cut follows from the sample alone.

#include "runtime/train/corrupted_spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "planner/core/error.h"
#include "runtime/ops/cross_entropy.h"
#include "tests/support/random_plan.h"

namespace braid::train {
namespace {

constexpr std::int64_t kFirst = 1000;  // sentinel; texts have smaller ids

struct Corrupted {
  std::vector<std::int64_t> encoder, decoder, labels;
  std::int64_t length = 0;
  bool operator==(const Corrupted&) const = default;
};

Corrupted corrupted(std::uint64_t key, const std::vector<std::int64_t>& text, std::size_t tokens,
                    std::size_t room) {
  Corrupted c{std::vector<std::int64_t>(tokens), std::vector<std::int64_t>(room),
              std::vector<std::int64_t>(room)};
  c.length = corrupt(key, text, kFirst, c.encoder, c.decoder, c.labels);
  return c;
}

std::vector<std::int64_t> text_of(std::int64_t length) {
  std::vector<std::int64_t> text(static_cast<std::size_t>(length));
  std::iota(text.begin(), text.end(), 1);
  return text;
}

// The text again: each sentinel's span, as the labels tell it, in its place.
std::vector<std::int64_t> repaired(const Corrupted& c) {
  std::vector<std::int64_t> text;
  for (std::int64_t i = 0; i < c.length; ++i) {
    const std::int64_t id = c.encoder[static_cast<std::size_t>(i)];
    if (id < kFirst - 500) {
      text.push_back(id);
      continue;
    }
    auto told = std::ranges::find(c.labels, id) + 1;
    while (*told < kFirst - 500) text.push_back(*told++);
  }
  return text;
}

struct CountCase {
  const char* fact;
  std::int64_t length, room, tokens, spans;
};
constexpr CountCase kCounts[] = {
    {"15% of 512 in spans of 3", 512, 512, 77, 26},
    {"a decoder of 4 has room for two", 512, 4, 2, 1},
    {"the least decoder", 512, 3, 1, 1},
    {"a short text", 20, 20, 3, 1},
    {"one token", 1, 16, 1, 1},
    {"two", 2, 16, 1, 1},
};

TEST(SpanCounts, FitTheTextAndTheDecoder) {
  for (const CountCase& c : kCounts) {
    const SpanCounts counts = span_counts(c.length, c.room);
    EXPECT_EQ(counts.tokens, c.tokens) << c.fact;
    EXPECT_EQ(counts.spans, c.spans) << c.fact;
  }
}

TEST(CorruptedSpans, LoseNothing) {
  for (std::int64_t length = 1; length <= 70; ++length)
    for (const std::size_t room : {3, 4, 9, 70}) {
      const std::vector<std::int64_t> text = text_of(length);
      const Corrupted c = corrupted(static_cast<std::uint64_t>(length), text, 70, room);
      const SpanCounts counts = span_counts(length, static_cast<std::int64_t>(room));
      EXPECT_EQ(repaired(c), text);
      EXPECT_EQ(c.length, length - counts.tokens + counts.spans);
      const auto told =
          static_cast<std::int64_t>(room) - std::ranges::count(c.labels, ops::kIgnoreLabel);
      EXPECT_EQ(told, counts.tokens + counts.spans + 1);
      EXPECT_EQ(c.labels[static_cast<std::size_t>(told) - 1], kFirst - counts.spans);
      EXPECT_EQ(c.decoder.front(), 0);
      EXPECT_TRUE(std::equal(c.decoder.begin() + 1, c.decoder.begin() + told, c.labels.begin()));
    }
}

TEST(CorruptedSpans, DifferFromSampleToSample) {
  const std::vector<std::int64_t> text = text_of(64);
  EXPECT_EQ(corrupted(1, text, 64, 64), corrupted(1, text, 64, 64));
  EXPECT_NE(corrupted(1, text, 64, 64), corrupted(2, text, 64, 64));
  // Every token but the first, which always stays, is cut out some time.
  std::vector<int> cut(64);
  for (std::uint64_t key = 0; key < 2000; ++key) {
    const Corrupted c = corrupted(key, text, 64, 64);
    for (const std::int64_t id : c.labels)
      if (id > 0 && id <= 64) ++cut[static_cast<std::size_t>(id) - 1];
  }
  EXPECT_EQ(cut.front(), 0);
  EXPECT_GT(*std::min_element(cut.begin() + 1, cut.end()), 10);
}

TEST(CorruptedSpans, NeedIdsOfTheirOwn) {
  const Model model = tiny_model("t5", 2, 32);
  EXPECT_EQ(num_sentinels(model), 3);
  EXPECT_NO_THROW(require_fitting(model, *synthetic(61 - 3, 1), {}));
  EXPECT_THROW(require_fitting(model, *synthetic(61 - 2, 1), {}), Error);
  EXPECT_NO_THROW(require_fitting(model, *synthetic(40, 1), {.mask_token = 42}));
  EXPECT_THROW(require_fitting(model, *synthetic(40, 1), {.mask_token = 41}), Error);
  EXPECT_THROW(require_fitting(model, *synthetic(40, 1), {.mask_token = 61}), Error);
}

TEST(CorruptedSpans, AreSamplesOfAnEncoderDecoder) {
  const Model model = tiny_model("t5_v1_1", 2, 32);
  const std::shared_ptr<const Dataset> data = synthetic(50, 3);
  const SampleSource source = sample_source(model, data, {.seed = 5});
  EXPECT_TRUE(source.ignores_labels);
  std::vector<std::int64_t> inputs(32 + 16), labels(16);
  source.read(17, inputs, labels);
  EXPECT_EQ(labels.front(), 60) << "the vocabulary's last id";
  EXPECT_EQ(source.length(17), 32 - 5 + 2);
  EXPECT_EQ(inputs[32 - 5 + 2], 0) << "padding";
  EXPECT_EQ(inputs[33], 60) << "the decoder's second input";
}

}  // namespace
}  // namespace braid::train
