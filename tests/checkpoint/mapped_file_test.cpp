#include "runtime/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>  // SIGBUS: POSIX, not <csignal>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/files.h"

namespace braid::checkpoint {
namespace {

constexpr std::size_t kPage = 4096;

int sum_of(const MappedFile& file) {
  int sum = 0;
  for (const std::byte byte : file.bytes()) sum += std::to_integer<int>(byte);
  return sum;
}

TEST(MappedFile, AFileThatShrinksIsAnErrorWithItsSizes) {
  struct Case {
    const char* fact;
    std::size_t before, after;
  };
  const Case cases[] = {{"by pages", 4 * kPage, kPage},
                        {"to nothing", 2 * kPage, 0},
                        {"within its last page", kPage + 100, kPage + 50}};
  for (const Case& c : cases) {
    const ScratchFolder folder;
    write_bytes(folder / "data", std::string(c.before, '\1'));
    const MappedFile file(folder / "data");
    EXPECT_EQ(sum_of(file), static_cast<int>(c.before)) << c.fact;
    EXPECT_NO_THROW(file.expect_whole()) << c.fact;
    std::filesystem::resize_file(folder / "data", c.after);
    EXPECT_EQ(sum_of(file), static_cast<int>(c.after)) << c.fact;  // zeros behind the new end
    const Mistake found = mistake_of(c.fact, [&] { file.expect_whole(); });
    EXPECT_TRUE(holds(found.what,
                      "from " + std::to_string(c.before) + " bytes to " + std::to_string(c.after)));
    EXPECT_EQ(found.where, (folder / "data").string());
  }
}

TEST(MappedFile, AFileThatShrankAndGrewAgainIsAnError) {
  const ScratchFolder folder;
  write_bytes(folder / "data", std::string(3 * kPage, '\1'));
  const MappedFile file(folder / "data");
  std::filesystem::resize_file(folder / "data", kPage);
  EXPECT_EQ(sum_of(file), static_cast<int>(kPage));
  write_bytes(folder / "data", std::string(3 * kPage, '\1'));
  EXPECT_TRUE(holds(mistake_of("it grew again", [&] { file.expect_whole(); }).what,
                    "part of the file's 12288 bytes could not be read"));
}

TEST(MappedFile, OtherFilesStayMappedAndMovesKeepWhatIsKnown) {
  const ScratchFolder folder;
  write_bytes(folder / "short", std::string(2 * kPage, '\1'));
  write_bytes(folder / "long", std::string(2 * kPage, '\1'));
  MappedFile shrinks(folder / "short");
  const MappedFile stays(folder / "long");
  std::filesystem::resize_file(folder / "short", 1);
  const MappedFile moved = std::move(shrinks);
  EXPECT_EQ(sum_of(moved), 1);
  EXPECT_EQ(sum_of(stays), 2 * static_cast<int>(kPage));
  EXPECT_NO_THROW(stays.expect_whole());
  EXPECT_THROW(moved.expect_whole(), Error);
}

// Another mapping than ours, read behind the end of its file.
void read_lost_page(const std::filesystem::path& name) {
  const int descriptor = open(name.c_str(), O_RDONLY);
  const auto* bytes = static_cast<const volatile char*>(
      mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, descriptor, 0));
  std::_Exit(bytes[kPage] == 0 ? 0 : 1);
}

TEST(MappedFileDeathTest, OtherBusErrorsStillEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const ScratchFolder folder;
  write_bytes(folder / "ours", "data");
  write_bytes(folder / "theirs", "data");
  EXPECT_EXIT(
      {
        const MappedFile file(folder / "ours");
        read_lost_page(folder / "theirs");
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace braid::checkpoint
