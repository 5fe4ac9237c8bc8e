#pragma once
// The pieces that every text renderer is made of: tones, bars, tables. A width counts terminal
// cells, not bytes.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

struct RenderOptions {
  bool color = false;
  int width = 80;  // columns to stay within where a line can be broken
};

enum class Tone { plain, strong, faint, good, bad, blue, cyan, green, yellow, magenta, red, gray };
std::string paint(std::string_view text, Tone tone, const RenderOptions& options);

// Cells that a text takes: escape sequences none, every character one.
std::size_t cells(std::string_view text);
std::string pad_right(std::string text, std::size_t width);
std::string pad_left(std::string text, std::size_t width);
std::string repeat(std::string_view glyph, std::size_t times);
// Control characters of a name that came from a file must not reach a terminal.
std::string printable(std::string_view text);

// A part of a bar. The glyph tells the parts apart where there is no color.
struct Segment {
  double amount = 0;
  std::string_view glyph;
  Tone tone = Tone::plain;
};
// The segments side by side at the scale where `full` takes `width` cells; the rest is dots. A
// limit inside the bar is drawn across it.
std::string stacked_bar(std::span<const Segment> segments, double full, std::size_t width,
                        const RenderOptions& options, std::optional<double> limit = std::nullopt);
// A bar of a fraction, to an eighth of a cell, without what is left of it.
std::string fraction_bar(double fraction, std::size_t width);

// Words of a text on lines of at most `width` cells; every line after the first begins with
// `indent` blanks.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent);

// `text` on lines of options.width cells, all but the first indented, with a line end.
std::string paragraph(std::string_view text, const RenderOptions& options, std::size_t indent = 0);
// A title and what is said of it: on one line if both fit, else below it.
std::string titled(const std::string& title, Tone title_tone, const std::string& remark,
                   Tone remark_tone, const RenderOptions& options);
// Pieces that stay whole, two blanks apart, on indented lines of options.width cells.
std::string flow(std::span<const std::string> pieces, const RenderOptions& options);

enum class Align { left, right };

// Rows of cells in columns as wide as their widest cell.
class Table {
 public:
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row);
  // Two blanks before the first column and between columns; no blanks at a line's end. Empty
  // columns are left out. A table wider than options.width has its left-aligned cells wrapped
  // between words; if that does not suffice, columns follow below the others, with the first column
  // again.
  std::string text(const RenderOptions& options) const;

 private:
  std::vector<std::size_t> natural_widths() const;
  std::size_t longest_word(std::size_t column) const;
  std::vector<std::size_t> narrowed(std::vector<std::size_t> widths, std::size_t width) const;
  std::string block(const std::vector<std::size_t>& widths) const;

  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace braid
