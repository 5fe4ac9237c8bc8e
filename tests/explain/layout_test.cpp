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
  EXPECT_EQ(table.text({}), "  α        1\n  long  1000\n");
}

TEST(Layout, ATableDropsColumnsThatAreEmpty) {
  Table table({Align::left, Align::left, Align::left});
  table.add({"a", "", "b"});
  EXPECT_EQ(table.text({}), "  a  b\n");
}

TEST(Layout, AWideTableWrapsItsTextColumns) {
  Table table({Align::left, Align::left, Align::right});
  table.add({"name", "a text of several words", "1"});
  EXPECT_EQ(table.text({.width = 24}),
            "  name  a text of      1\n"
            "        several words\n");
}

TEST(Layout, AToneDoesNotRunIntoTheNextColumn) {
  Table table({Align::left, Align::left});
  table.add({"\x1b[1mtwelve cells and more\x1b[0m", "x"});
  EXPECT_EQ(table.text({.width = 17}),
            "  \x1b[1mtwelve cells\x1b[0m  x\n"
            "  \x1b[1mand more\x1b[0m\n");
}

TEST(Layout, ColumnsThatDoNotFitFollowBelowWithTheFirstAgain) {
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.add({"stage", "forward", "backward", "update"});
  table.add({"0", "1 s", "2 s", "3 s"});
  EXPECT_EQ(table.text({.width = 26}),
            "  stage  forward  backward\n"
            "  0          1 s       2 s\n"
            "\n"
            "  stage  update\n"
            "  0         3 s\n");
}

TEST(Layout, WordsWrapAtTheWidth) {
  EXPECT_EQ(wrap("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrap("unbreakable", 4, 0), "unbreakable");
}

}  // namespace
}  // namespace braid
