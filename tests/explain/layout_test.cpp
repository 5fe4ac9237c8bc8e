#include "planner/explain/layout.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr RenderOptions kPlain{.color = false, .width = 100};
constexpr RenderOptions kColor{.color = true, .width = 100};

TEST(Layout, CellsCountCharactersNotBytesOrColors) {
  EXPECT_EQ(cells("abc"), 3U);
  EXPECT_EQ(cells("█▓ × α"), 6U);
  EXPECT_EQ(cells(paint("█▓", Tone::bad, kColor)), 2U);
}

TEST(Layout, ABarIsAlwaysAsWideAsAsked) {
  const Segment parts[] = {{1, "█"}, {1, "▓"}, {1, "▒"}};
  EXPECT_EQ(stacked_bar(parts, 6, 10, kPlain), "██▓▒▒·····");  // cuts at 1.7, 3.3 and 5 cells
  EXPECT_EQ(stacked_bar(parts, 3, 6, kPlain), "██▓▓▒▒");
  EXPECT_EQ(stacked_bar(parts, 0, 4, kPlain), "····");
}

TEST(Layout, ALimitIsDrawnAcrossTheBar) {
  const Segment parts[] = {{8, "█"}};
  EXPECT_EQ(stacked_bar(parts, 8, 8, kPlain, 4.0), "████┃███");
}

TEST(Layout, FractionsGoDownToAnEighth) {
  EXPECT_EQ(fraction_bar(0.5, 4), "██");
  EXPECT_EQ(fraction_bar(0.53125, 4), "██▏");
  EXPECT_EQ(fraction_bar(0, 4), "");
  EXPECT_EQ(fraction_bar(7, 2), "██");
}

TEST(Layout, ATableAlignsWhatTakesSeveralBytes) {
  Table table({Align::left, Align::right});
  table.add({"α", "1"});
  table.add({"long", "1000"});
  EXPECT_EQ(table.text(), "  α        1\n  long  1000\n");
}

TEST(Layout, ATableDropsColumnsThatAreEmpty) {
  Table table({Align::left, Align::left, Align::left});
  table.add({"a", "", "b"});
  EXPECT_EQ(table.text(), "  a  b\n");
}

TEST(Layout, WordsWrapAtTheWidth) {
  EXPECT_EQ(wrap("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrap("unbreakable", 4, 0), "unbreakable");
}

}  // namespace
}  // namespace braid
