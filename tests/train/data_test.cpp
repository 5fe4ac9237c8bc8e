#include "runtime/train/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/files.h"

namespace braid::train {
namespace {

using Tokens = std::vector<std::int64_t>;

Tokens sample(const Dataset& data, std::int64_t index, std::size_t size) {
  Tokens tokens(size, -1);
  data.read(index, tokens);
  return tokens;
}

TEST(Synthetic, IsAFunctionOfSeedAndIndex) {
  const auto data = synthetic(100, 5);
  const Tokens tokens = sample(*data, 1'000'000, 65);
  EXPECT_EQ(sample(*synthetic(100, 5), 1'000'000, 65), tokens);
  EXPECT_NE(sample(*synthetic(100, 6), 1'000'000, 65), tokens);
  EXPECT_NE(sample(*data, 1'000'001, 65), tokens);
  const Tokens shorter = sample(*data, 1'000'000, 33);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), tokens.begin()));
  EXPECT_EQ(data->samples(), 0);
  EXPECT_EQ(data->vocabulary(), 100);
}

// Cross-entropy of the best model of token pairs, with counts as its probabilities.
TEST(Synthetic, CanBeLearntFromPairsOnly) {
  constexpr std::size_t kVocabulary = 16, kSamples = 400, kTokens = 257;
  std::vector<double> pairs(kVocabulary * kVocabulary), singles(kVocabulary);
  const auto data = synthetic(std::int64_t{kVocabulary}, 3);
  for (std::int64_t index = 0; std::cmp_less(index, kSamples); ++index) {
    const Tokens tokens = sample(*data, index, kTokens);
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      const auto before = static_cast<std::size_t>(tokens[i - 1]);
      const auto token = static_cast<std::size_t>(tokens[i]);
      ASSERT_LT(token, kVocabulary);
      ++pairs[before * kVocabulary + token];
      ++singles[before];
    }
  }
  const auto total = static_cast<double>(kSamples * (kTokens - 1));
  double loss_of_pairs = 0, loss_of_singles = 0;
  for (std::size_t a = 0; a < kVocabulary; ++a) {
    loss_of_singles -= singles[a] / total * std::log(singles[a] / total);
    for (std::size_t b = 0; b < kVocabulary; ++b) {
      const double count = pairs[a * kVocabulary + b];
      if (count > 0) loss_of_pairs -= count / total * std::log(count / singles[a]);
    }
  }
  // 7/8 + 1/128 for the one follower and 1/128 for each of the 15 others: 0.6786.
  EXPECT_NEAR(loss_of_pairs, 0.6786, 0.01);
  EXPECT_NEAR(loss_of_singles, std::log(16.0), 0.01);
}

TEST(Synthetic, RefusesAnEmptyVocabulary) {
  EXPECT_TRUE(holds(mistake_of("no tokens", [] { synthetic(0, 1); }).what, "is empty"));
}

TEST(TextFile, WindowsShareOnlyTheirBoundaryByte) {
  const ScratchFolder folder;
  write_bytes(folder / "a.txt", "abcdefgh\xff");
  const auto data = text_file(folder / "a.txt", 4);
  EXPECT_EQ(data->samples(), 2);
  EXPECT_EQ(data->vocabulary(), 256);
  EXPECT_EQ(sample(*data, 0, 5), (Tokens{'a', 'b', 'c', 'd', 'e'}));
  EXPECT_EQ(sample(*data, 1, 5), (Tokens{'e', 'f', 'g', 'h', 255}));
  EXPECT_TRUE(holds(data->describe(), "2 samples of 4"));
}

TEST(TextFile, TheLastLabelIsNeededToo) {
  const ScratchFolder folder;
  write_bytes(folder / "a.txt", "abcdefgh");
  EXPECT_EQ(text_file(folder / "a.txt", 4)->samples(), 1);
  EXPECT_EQ(text_file(folder / "a.txt", 7)->samples(), 1);
  const Mistake found = mistake_of("no last label", [&] { text_file(folder / "a.txt", 8); });
  EXPECT_TRUE(holds(found.what, "8 tokens do not make one sample of 8 tokens"));
  EXPECT_EQ(found.where, (folder / "a.txt").string());
  EXPECT_TRUE(holds(found.fix, "at most 7"));
}

TEST(TextFile, RefusesWhatHasNoSamples) {
  const ScratchFolder folder;
  write_bytes(folder / "empty", "");
  write_bytes(folder / "some", "some text");
  EXPECT_TRUE(holds(mistake_of("empty", [&] { text_file(folder / "empty", 1); }).what, "0 tokens"));
  EXPECT_TRUE(holds(mistake_of("absent", [&] { text_file(folder / "no", 1); }).what, "No such"));
  EXPECT_TRUE(holds(mistake_of("folder", [&] { text_file(folder.path(), 1); }).what, "a folder"));
  EXPECT_TRUE(holds(mistake_of("sequence", [&] { text_file(folder / "some", 0); }).what,
                    "a sequence of 0 tokens"));
}

TEST(TextFile, ThreadsReadAtTheSameTime) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 4001; ++i) text.push_back(static_cast<char>(i * 7));
  write_bytes(folder / "a", text);
  const auto data = text_file(folder / "a", 40);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (std::int64_t index = 0; index < data->samples(); ++index)
        for (std::int64_t i = 0; i < 41; ++i)
          if (sample(*data, index, 41)[static_cast<std::size_t>(i)] != (index * 40 + i) * 7 % 256)
            ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

std::string images(std::uint32_t count, std::uint32_t side) {
  std::string text = "BRDIMG01";
  const auto add = [&](std::uint32_t number) {
    for (int shift = 0; shift < 32; shift += 8)
      text.push_back(static_cast<char>(number >> shift & 0xff));
  };
  for (const std::uint32_t number : {count, 1U, side, side, 2U}) add(number);
  for (std::uint32_t i = 0; i < count; ++i) add(i % 2);
  return text + std::string(std::size_t{count} * side * side, '\7');
}

// What lies behind the new end reads as zeros, which are tokens and pixels like others.
TEST(FilesCutShortWhileTheyAreRead, AreErrorsInEveryFormat) {
  struct Case {
    const char* format;
    std::string bytes;
    std::function<std::unique_ptr<Dataset>(const std::filesystem::path&)> open;
  };
  constexpr std::int64_t kSequence = 16;
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += "the same again\n";
  const Case cases[] = {
      {"text:", lines, [](const auto& file) { return text_file(file, kSequence); }},
      {"lines:", lines, [](const auto& file) { return text_lines(file, kSequence); }},
      {"images:", images(60, 32), [](const auto& file) { return image_file(file); }},
  };
  for (const Case& c : cases)
    for (const std::uintmax_t left : {std::uintmax_t{0}, std::uintmax_t{5000}}) {
      const ScratchFolder folder;
      write_bytes(folder / "data", c.bytes);
      const auto data = c.open(folder / "data");
      std::vector<std::uint8_t> pixels(data->image() ? 32 * 32 : 0);
      const auto read_last = [&] {
        if (data->image())
          data->read_image(data->samples() - 1, pixels);
        else
          sample(*data, data->samples() - 1, kSequence + 1);
      };
      EXPECT_NO_THROW(read_last()) << c.format;
      std::filesystem::resize_file(folder / "data", left);
      const Mistake found = mistake_of(c.format, read_last);
      EXPECT_TRUE(holds(found.what, "the file was cut short while it was being read")) << c.format;
      EXPECT_EQ(found.where, (folder / "data").string());
      if (!data->pads()) continue;
      EXPECT_THROW(data->length(data->samples() - 1), Error) << c.format;
    }
}

}  // namespace
}  // namespace braid::train
