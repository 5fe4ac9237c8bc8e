#include "planner/explain/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "planner/core/error.h"
#include "planner/core/text.h"

namespace braid {
namespace {

constexpr std::size_t kGutter = 2;
constexpr std::string_view kToneEnd = "\x1b[0m";

// Codes of ECMA-48, in the sixteen colors that every terminal's theme keeps readable.
std::string_view code_of(Tone tone) {
  switch (tone) {
    case Tone::plain:
      return "";
    case Tone::strong:
      return "1";
    case Tone::faint:
      return "2";
    case Tone::good:
      return "1;32";
    case Tone::bad:
      return "1;31";
    case Tone::blue:
      return "34";
    case Tone::cyan:
      return "36";
    case Tone::green:
      return "32";
    case Tone::yellow:
      return "33";
    case Tone::magenta:
      return "35";
    case Tone::red:
      return "31";
    case Tone::gray:
      return "90";
  }
  internal_failure("a tone without a code", std::source_location::current());
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string paint(std::string_view text, Tone tone, const RenderOptions& options) {
  if (!options.color || tone == Tone::plain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code_of(tone), text);
}

std::size_t cells(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    const bool continues = (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;  // of UTF-8
    if (!continues) ++count;
  }
  return count;
}

std::string repeat(std::string_view glyph, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += glyph;
  return text;
}

std::string pad_right(std::string text, std::size_t width) {
  const std::size_t used = cells(text);
  if (used < width) text.append(width - used, ' ');
  return text;
}

std::string pad_left(std::string text, std::size_t width) {
  const std::size_t used = cells(text);
  if (used < width) text.insert(0, width - used, ' ');
  return text;
}

std::string printable(std::string_view text) {
  std::string clean(text);
  std::ranges::replace_if(
      clean, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return clean;
}

std::string stacked_bar(std::span<const Segment> segments, double full, std::size_t width,
                        const RenderOptions& options, std::optional<double> limit) {
  const auto cells_up_to = [&](double amount) {
    const double exact = full > 0 ? amount / full * static_cast<double>(width) : 0;
    return static_cast<std::size_t>(std::clamp(std::round(exact), 0.0, double(width)));
  };
  // Rounding the running sum, not each part, keeps the whole bar true to its total.
  std::vector<std::string> bar(width, paint("·", Tone::faint, options));
  double sum = 0;
  std::size_t filled = 0;
  for (const Segment& segment : segments) {
    sum += segment.amount;
    const std::size_t end = cells_up_to(sum);
    for (; filled < end; ++filled) bar[filled] = paint(segment.glyph, segment.tone, options);
  }
  if (limit && width > 0)
    bar[std::min(cells_up_to(*limit), width - 1)] = paint("┃", Tone::bad, options);
  return join(bar, "");
}

std::string fraction_bar(double fraction, std::size_t width) {
  static constexpr std::array<std::string_view, 8> kEighths = {"",  "▏", "▎", "▍",
                                                               "▌", "▋", "▊", "▉"};
  const double exact = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width) * 8;
  const auto eighths = static_cast<std::size_t>(std::llround(exact));
  return repeat("█", eighths / 8) + std::string(kEighths.at(eighths % 8));
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent) {
  std::string result;
  std::size_t used = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const std::size_t size = cells(word);
    if (used > 0 && used + 1 + size > width) {
      result += '\n' + std::string(indent, ' ');
      used = 0;
    } else if (used > 0) {
      result += ' ';
      ++used;
    }
    result += word;
    used += size;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

void Table::add(std::vector<std::string> row) {
  internal_check(row.size() <= columns_.size(), "a row no longer than its table is wide");
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

std::string paragraph(std::string_view text, const RenderOptions& options, std::size_t indent) {
  return wrap(text, static_cast<std::size_t>(options.width) - indent, indent) + '\n';
}

std::string titled(const std::string& title, Tone title_tone, const std::string& remark,
                   Tone remark_tone, const RenderOptions& options) {
  constexpr std::size_t kGap = 3;
  const std::string line = paint(title, title_tone, options);
  if (remark.empty()) return line + '\n';
  const auto width = static_cast<std::size_t>(options.width);
  if (cells(title) + kGap + cells(remark) <= width)
    return line + std::string(kGap, ' ') + paint(remark, remark_tone, options) + '\n';
  return line + "\n  " + paint(wrap(remark, width - kGutter, kGutter), remark_tone, options) + '\n';
}

std::string flow(std::span<const std::string> pieces, const RenderOptions& options) {
  std::string text;
  std::string line;
  for (const std::string& piece : pieces) {
    const std::size_t after = cells(line) + kGutter + cells(piece);
    if (!line.empty() && after > static_cast<std::size_t>(options.width)) {
      text += line + '\n';
      line.clear();
    }
    line += std::string(kGutter, ' ') + piece;
  }
  return text + line + '\n';
}

namespace {

// A cell's text on lines of at most `width` cells. A tone that spans lines ends and begins anew at
// each of them.
std::vector<std::string> cell_lines(const std::string& text, std::size_t width) {
  if (cells(text) <= width) return {text};
  std::vector<std::string> lines;
  std::istringstream wrapped(wrap(text, width, 0));
  std::string tone;  // the escape sequence in force
  for (std::string line; std::getline(wrapped, line);) {
    line.insert(0, tone);
    for (std::size_t at = line.find('\x1b'); at != std::string::npos;
         at = line.find('\x1b', at + 1)) {
      const std::string code = line.substr(at, line.find('m', at) - at + 1);
      tone = code == kToneEnd ? "" : code;
    }
    if (!tone.empty()) line += kToneEnd;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::size_t total_width(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (const std::size_t width : widths) total += width == 0 ? 0 : kGutter + width;
  return total;
}

}  // namespace

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths(columns_.size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], cells(row[i]));
  return widths;
}

std::size_t Table::longest_word(std::size_t column) const {
  std::size_t longest = 0;
  for (const auto& row : rows_) {
    std::istringstream words(row[column]);
    for (std::string word; words >> word;) longest = std::max(longest, cells(word));
  }
  return longest;
}

// Takes from the widest left-aligned columns what is above `width`, as far as their words allow.
std::vector<std::size_t> Table::narrowed(std::vector<std::size_t> widths, std::size_t width) const {
  constexpr std::size_t kNarrowest = 12;  // cells: less is hard to read
  std::vector<std::size_t> least(widths.size());
  for (std::size_t i = 0; i < widths.size(); ++i)
    least[i] = columns_[i] == Align::right
                   ? widths[i]
                   : std::min(widths[i], std::max(kNarrowest, longest_word(i)));
  while (total_width(widths) > width) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest]))
        widest = i;
    if (widest == widths.size()) break;
    --widths[widest];
  }
  return widths;
}

std::string Table::block(const std::vector<std::size_t>& widths) const {
  std::string text;
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> lines(row.size());
    std::size_t height = 1;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths[i] > 0) lines[i] = cell_lines(row[i], widths[i]);
      height = std::max(height, lines[i].size());
    }
    for (std::size_t k = 0; k < height; ++k) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (widths[i] == 0) continue;
        const std::string cell = k < lines[i].size() ? lines[i][k] : "";
        line.append(kGutter, ' ');
        line += columns_[i] == Align::left ? pad_right(cell, widths[i]) : pad_left(cell, widths[i]);
      }
      text += without_trailing_blanks(std::move(line)) + '\n';
    }
  }
  return text;
}

std::string Table::text(const RenderOptions& options) const {
  const auto width = static_cast<std::size_t>(options.width);
  const std::vector<std::size_t> all = narrowed(natural_widths(), width);
  const auto key = static_cast<std::size_t>(
      std::ranges::find_if(all, [](std::size_t one) { return one > 0; }) - all.begin());
  std::string text;
  for (std::size_t next = key + 1; text.empty() || next < all.size();) {
    std::vector<std::size_t> some(all.size());
    if (key < all.size()) some[key] = all[key];
    bool one = false;  // a block has at least one column beside its key
    for (; next < all.size() && (!one || total_width(some) + kGutter + all[next] <= width);
         ++next) {
      some[next] = all[next];
      one = one || all[next] > 0;
    }
    const std::vector<std::size_t> natural = natural_widths();
    for (std::size_t i = 0; i < some.size(); ++i) some[i] = some[i] > 0 ? natural[i] : 0;
    text += (text.empty() ? "" : "\n") + block(narrowed(std::move(some), width));
    if (rows_.empty()) break;
  }
  return text;
}

}  // namespace braid
