// Numbers and names as people write and read them.

#include "planner/core/text.h"

#include <gtest/gtest.h>

#include "planner/core/error.h"

namespace braid {
namespace {

TEST(Text, FormatsBytes) {
  constexpr std::pair<std::int64_t, const char*> kCases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.0 KiB"},
      {-2048, "-2.0 KiB"},
      {1'572'864, "1.5 MiB"},
      {std::int64_t{80} << 30, "80.0 GiB"},
      {std::int64_t{3} << 40, "3.0 TiB"},
  };
  for (const auto& [bytes, text] : kCases) EXPECT_EQ(format_bytes(Bytes(bytes)), text);
}

TEST(Text, FormatsTimes) {
  constexpr std::pair<double, const char*> kCases[] = {
      {0, "0 s"}, {1.2345, "1.234 s"}, {61, "61.000 s"}, {0.0123, "12.30 ms"}, {4.5e-6, "4.5 us"},
  };
  for (const auto& [seconds, text] : kCases) EXPECT_EQ(format_seconds(Seconds(seconds)), text);
}

TEST(Text, FormatsCountsAndPercentages) {
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1500), "1.5 K");
  EXPECT_EQ(format_count(124e6), "124.0 M");
  EXPECT_EQ(format_count(6.74e9), "6.74 B");
  EXPECT_EQ(format_count(1.008e12), "1.01 T");
  EXPECT_EQ(format_percent(0.1234), "12.3%");
}

TEST(Text, ParsesBytes) {
  constexpr std::pair<const char*, std::int64_t> kCases[] = {
      {"0", 0},
      {"512", 512},
      {"16GiB", std::int64_t{16} << 30},
      {"80 GiB", std::int64_t{80} << 30},
      {"24GB", 24'000'000'000},
      {"1.5KiB", 1536},
      {"1e3 B", 1000},
      {"2TiB", std::int64_t{2} << 40},
  };
  for (const auto& [text, bytes] : kCases) EXPECT_EQ(parse_bytes(text, "--memory"), Bytes(bytes));
}

TEST(Text, ParsesRatesAndTimes) {
  EXPECT_EQ(parse_bandwidth("450GB/s", "x"), BytesPerSecond(450e9));
  EXPECT_EQ(parse_bandwidth("400Gb/s", "x"), BytesPerSecond(50e9));  // bits
  EXPECT_EQ(parse_bandwidth("12.5", "x"), BytesPerSecond(12.5));
  EXPECT_EQ(parse_seconds("2ms", "x"), Seconds(2e-3));
  EXPECT_EQ(parse_seconds("0.25", "x"), Seconds(0.25));
  EXPECT_EQ(parse_flops("989TFLOPS", "x"), FlopsPerSecond(989e12));
}

TEST(Text, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "GiB", "16 gib", "16GiBs", "-1GiB", "nan", "inf", "1e999",
                           "16,5GiB", "9000000TiB", "0x10"}) {
    try {
      parse_bytes(text, "--memory");
      ADD_FAILURE() << "'" << text << "' passed";
    } catch (const Error& error) {
      EXPECT_EQ(error.mistake().where, "--memory");
      EXPECT_FALSE(error.mistake().fix.empty());
    }
  }
}

TEST(Text, NamesTheUnitsThatItTakes) {
  try {
    parse_seconds("3 minutes", "network.latency");
    ADD_FAILURE() << "minutes passed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "'3 minutes' is not a time\n"
              "  where: network.latency\n"
              "  fix:   write a number and one of s, ms, us, ns");
  }
}

struct NearestCase {
  const char* fact;
  const char* name;
  const char* expected;
};

constexpr NearestCase kNearest[] = {
    {"a missing letter", "layrs", "layers"},       {"two letters exchanged", "lsyaers", "layers"},
    {"the name itself", "heads", "heads"},         {"the nearer of two", "head", "heads"},
    {"nothing is near", "optimizer", ""},          {"a short name allows two edits", "tp", "cp"},
    {"other digits are another name", "fp16", ""}, {"digits out of place", "1fb1", "1f1b"},
};

TEST(Text, FindsTheNearestName) {
  const std::vector<std::string> names = {"layers", "heads", "hidden", "cp", "fp64", "1f1b"};
  for (const NearestCase& c : kNearest) EXPECT_EQ(nearest(c.name, names), c.expected) << c.fact;
  EXPECT_EQ(nearest("layers", {}), "");
}

TEST(Text, JoinsAndDivides) {
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, ", "), "a, b");
  EXPECT_EQ(join(std::vector<int>{}, ", "), "");
  EXPECT_EQ(divisors(1), (std::vector<int>{1}));
  EXPECT_EQ(divisors(12), (std::vector<int>{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(divisors(16), (std::vector<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(divisors(2'147'483'647), (std::vector<int>{1, 2'147'483'647}));
  for (const std::int64_t n : {1, 2, 1 << 20}) EXPECT_TRUE(is_power_of_two(n)) << n;
  for (const std::int64_t n : {0, -2, 3, 12}) EXPECT_FALSE(is_power_of_two(n)) << n;
}

}  // namespace
}  // namespace braid
