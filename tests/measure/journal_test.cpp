// What a killed run leaves behind, and what the next one makes of it.

#include "runtime/measure/journal.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace braid::measure {
namespace {

const std::vector<Fact> kFacts = {{"ranks", "4"}, {"backend", "mpi"}};
const Finding kFirst{{1.5, 2}, 0.1}, kSecond{{1e-6}, 0};

void write_two(const std::filesystem::path& file) {
  Journal journal(file, kFacts);
  journal.add("first", kFirst);
  journal.add("second", kSecond);
}

TEST(Journal, GoesOnWhereItWas) {
  const ScratchFolder folder;
  write_two(folder / "j");
  Journal again(folder / "j", kFacts);
  EXPECT_EQ(again.size(), 2U);
  EXPECT_EQ(again.find("first"), kFirst);
  EXPECT_EQ(again.find("second"), kSecond);
  EXPECT_EQ(again.find("third"), std::nullopt);
}

TEST(Journal, DropsALineThatWasCutOff) {
  const ScratchFolder folder;
  write_two(folder / "j");
  const std::string whole = read_bytes(folder / "j");
  // Wherever the last line was cut, the first finding is there and the journal goes on.
  const std::size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t end = last_line; end < whole.size(); ++end) {
    write_bytes(folder / "j", whole.substr(0, end));
    Journal again(folder / "j", kFacts);
    EXPECT_EQ(again.size(), 1U) << end;
    again.add("second", kSecond);
    EXPECT_EQ(read_bytes(folder / "j"), whole) << end;
  }
}

TEST(Journal, BeginsAnewUnderOtherFacts) {
  const ScratchFolder folder;
  write_two(folder / "j");
  const std::vector<Fact> others = {{"ranks", "8"}, {"backend", "mpi"}};
  EXPECT_EQ(Journal(folder / "j", others).size(), 0U);
  EXPECT_EQ(Journal(folder / "j", kFacts).size(), 0U);  // the old findings are gone
}

TEST(Journal, RefusesAFileThatIsNone) {
  const ScratchFolder folder;
  write_bytes(folder / "notes.txt", "not to be lost\n");
  const Mistake mistake =
      mistake_of("a text", [&] { Journal journal(folder / "notes.txt", kFacts); });
  EXPECT_TRUE(holds(mistake.what, "no journal"));
  EXPECT_TRUE(holds(mistake.where, "notes.txt"));
  EXPECT_EQ(read_bytes(folder / "notes.txt"), "not to be lost\n");
}

TEST(Journal, IsGoneWhenTheRunIsComplete) {
  const ScratchFolder folder;
  Journal journal(folder / "j", kFacts);
  journal.add("first", kFirst);
  journal.remove();
  EXPECT_FALSE(std::filesystem::exists(folder / "j"));
}

TEST(Journal, TravelsAsText) {
  Journal journal;
  journal.add("a \"key\"", kFirst);
  EXPECT_EQ(Journal::from_text(journal.text()).find("a \"key\""), kFirst);
}

}  // namespace
}  // namespace braid::measure
