#pragma once
// Damages JSON text the way accidents and bad luck do: bytes, slices, numbers, keys.

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : engine_(seed) {}

  std::string operator()(std::string text) {
    const int times = 1 + below(4);
    for (int i = 0; i < times && !text.empty(); ++i) mutate(text);
    return text;
  }
  int below(std::size_t end) {
    return static_cast<int>(std::uniform_int_distribution<std::size_t>(0, end - 1)(engine_));
  }

 private:
  struct Span {
    std::size_t begin, size;
  };

  void mutate(std::string& text) {
    switch (below(10)) {
      case 0:
        text[at(text)] = static_cast<char>(text[at(text)] ^ (1 << below(8)));
        return;
      case 1:
        text.insert(at(text), 1, static_cast<char>(below(256)));
        return;
      case 2:
        text.erase(at(text), 1 + at(text) % 8);
        return;
      case 3:
        text.resize(at(text));
        return;
      case 4:
        text.insert(at(text), slice(text));
        return;
      case 5:
        text.replace(at(text), 1 + at(text) % 16, slice(text));
        return;
      case 6:
      case 7:
        return replace(text, numbers(text),
                       kNumbers[static_cast<std::size_t>(below(kNumbers.size()))]);
      case 8:
        return swap_keys(text);
      case 9:
        return replace(text, below(2) == 0 ? numbers(text) : strings(text),
                       kValues[static_cast<std::size_t>(below(kValues.size()))]);
    }
  }

  std::size_t at(const std::string& text) { return static_cast<std::size_t>(below(text.size())); }
  std::string slice(const std::string& text) { return text.substr(at(text), 1 + at(text) % 64); }

  void replace(std::string& text, const std::vector<Span>& spans, std::string_view with) {
    if (spans.empty()) return;
    const Span span = spans[static_cast<std::size_t>(below(spans.size()))];
    text.replace(span.begin, span.size, with);
  }

  static std::vector<Span> numbers(const std::string& text) {
    const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    std::vector<Span> found;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!digit(text[i])) continue;
      const std::size_t begin = i;
      while (i < text.size() && (digit(text[i]) || text[i] == '.')) ++i;
      found.push_back({begin, i - begin});
    }
    return found;
  }

  // With their quotes.
  static std::vector<Span> strings(const std::string& text) {
    std::vector<Span> found;
    for (std::size_t begin = text.find('"'); begin != std::string::npos;) {
      const std::size_t end = text.find('"', begin + 1);
      if (end == std::string::npos) break;
      found.push_back({begin, end - begin + 1});
      begin = text.find('"', end + 1);
    }
    return found;
  }

  void swap_keys(std::string& text) {
    const std::vector<Span> all = strings(text);
    if (all.size() < 2) return;
    Span a = all[static_cast<std::size_t>(below(all.size()))];
    Span b = all[static_cast<std::size_t>(below(all.size()))];
    if (b.begin < a.begin) std::swap(a, b);
    if (a.begin == b.begin) return;
    const std::string first = text.substr(a.begin, a.size);
    const std::string second = text.substr(b.begin, b.size);
    text.replace(b.begin, b.size, first);
    text.replace(a.begin, a.size, second);
  }

  static constexpr std::array<std::string_view, 22> kNumbers = {"0",
                                                                "1",
                                                                "2",
                                                                "3",
                                                                "7",
                                                                "64",
                                                                "-1",
                                                                "-0.0",
                                                                "0.5",
                                                                "1e-400",
                                                                "1e308",
                                                                "1e999",
                                                                "2147483647",
                                                                "2147483648",
                                                                "4294967296",
                                                                "1099511627776",
                                                                "9007199254740993",
                                                                "9223372036854775807",
                                                                "-9223372036854775808",
                                                                "18446744073709551616",
                                                                "16777216",
                                                                "1048576"};
  static constexpr std::array<std::string_view, 12> kValues = {
      "null", "true",        "false",       "[]",       "{}",  "[[[[[[]]]]]]",
      "\"\"", "\"\\u0000\"", "\"\\ud800\"", "\"none\"", "NaN", "\"9999999999999GiB\""};

  std::mt19937_64 engine_;
};

}  // namespace braid
