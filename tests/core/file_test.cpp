#include "planner/core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "tests/support/file_limit.h"
#include "tests/support/files.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

mode_t kind_of(const fs::path& file) {
  struct stat status {};
  EXPECT_EQ(lstat(file.c_str(), &status), 0) << file;
  return status.st_mode & S_IFMT;
}

mode_t permissions_of(const fs::path& file) {
  struct stat status {};
  EXPECT_EQ(stat(file.c_str(), &status), 0) << file;
  return status.st_mode & 07777;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

// Standard output goes to a file while it lives.
class RedirectedOutput {
 public:
  explicit RedirectedOutput(const fs::path& file) : before_(dup(STDOUT_FILENO)) {
    const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(opened, STDOUT_FILENO);
    close(opened);
  }
  ~RedirectedOutput() {
    dup2(before_, STDOUT_FILENO);
    close(before_);
  }
  RedirectedOutput(const RedirectedOutput&) = delete;
  RedirectedOutput& operator=(const RedirectedOutput&) = delete;

 private:
  int before_;
};

class Files : public testing::Test {
 protected:
  // As /dev/null (1, 3), /dev/zero (1, 5) and /dev/full (1, 7) are. False where that is not
  // allowed.
  bool make_device(const fs::path& file, unsigned int minor) const {
    return mknod(file.c_str(), S_IFCHR | 0666, makedev(1, minor)) == 0 &&
           access(file.c_str(), R_OK) == 0 && open_close(file);
  }

  ScratchFolder folder_;

 private:
  // A file system mounted without devices makes them, but does not open them.
  static bool open_close(const fs::path& file) {
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    close(descriptor);
    return true;
  }
};

TEST_F(Files, AreWrittenAndReplaced) {
  const auto file = folder_ / "a.json";
  write_text(file, "first");
  write_text(file, "[1]\n");
  EXPECT_EQ(read_text(file), "[1]\n");
  EXPECT_EQ(names_in(folder_.path()), std::vector<std::string>{"a.json"});
}

TEST_F(Files, KeepTheirPermissionsWhenReplaced) {
  const auto file = folder_ / "a.json";
  write_bytes(file, "old");
  fs::permissions(file, fs::perms(0640));
  write_text(file, "new");
  EXPECT_EQ(permissions_of(file), 0640U);
}

TEST_F(Files, ThatAreNewHaveThePermissionsOfTheMask) {
  const mode_t before = umask(027);
  write_text(folder_ / "a.json", "new");
  umask(before);
  EXPECT_EQ(permissions_of(folder_ / "a.json"), 0640U);
}

TEST_F(Files, ThatAreReadOnlyStay) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everything";
  const auto file = folder_ / "a.json";
  write_bytes(file, "old");
  fs::permissions(file, fs::perms(0444));
  EXPECT_TRUE(holds(mistake_of("read-only", [&] { write_text(file, "new"); }).what, "denied"));
  EXPECT_TRUE(holds(mistake_of("read-only", [&] { expect_writable(file); }).what, "denied"));
  EXPECT_EQ(read_bytes(file), "old");
}

TEST_F(Files, ThatTheUserHasBesideTheTargetStay) {
  write_bytes(folder_ / "a.json.tmp", "mine");
  write_text(folder_ / "a.json", "new");
  EXPECT_EQ(read_bytes(folder_ / "a.json.tmp"), "mine");
}

TEST_F(Files, LeaveNothingWhenDiscarded) {
  write_bytes(folder_ / "a.json", "old");
  {
    OutputFile out(folder_ / "a.json");
    out.write("half of it");
    EXPECT_EQ(read_bytes(folder_ / "a.json"), "old");
  }
  EXPECT_EQ(read_bytes(folder_ / "a.json"), "old");
  EXPECT_EQ(names_in(folder_.path()).size(), 1U);
}

TEST_F(Files, LeaveTheOldOneWhereWritingFails) {
  const auto file = folder_ / "a.json";
  write_bytes(file, "old");
  const FileSizeLimit limit(1000);
  mistake_of("too long", [&] { write_text(file, std::string(2000, 'x')); });
  mistake_of("no room", [&] { expect_writable(file); });
  EXPECT_EQ(read_bytes(file), "old");
  EXPECT_EQ(names_in(folder_.path()).size(), 1U);
}

TEST_F(Files, ThatAreSymbolicLinksStaySo) {
  fs::create_directory(folder_ / "there");
  write_bytes(folder_ / "there" / "target", "old");
  fs::create_symlink("there/target", folder_ / "middle");
  fs::create_symlink("middle", folder_ / "link");
  write_text(folder_ / "link", "new");
  EXPECT_EQ(kind_of(folder_ / "link"), S_IFLNK);
  EXPECT_EQ(kind_of(folder_ / "middle"), S_IFLNK);
  EXPECT_EQ(read_bytes(folder_ / "there" / "target"), "new");
}

TEST_F(Files, ThatAreLinksToNothingMakeTheirTarget) {
  fs::create_symlink(folder_ / "target", folder_ / "link");
  write_text(folder_ / "link", "new");
  EXPECT_EQ(kind_of(folder_ / "link"), S_IFLNK);
  EXPECT_EQ(read_bytes(folder_ / "target"), "new");
}

TEST_F(Files, ThatAreLinksInACircleAreRefused) {
  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  mistake_of("a circle", [&] { write_text(folder_ / "a", "new"); });
  mistake_of("a circle", [&] { read_text(folder_ / "a"); });
}

TEST_F(Files, ThatAreDevicesStayDevices) {
  if (!make_device(folder_ / "null", 3)) GTEST_SKIP() << "devices cannot be made here";
  expect_writable(folder_ / "null");
  write_text(folder_ / "null", "gone");
  EXPECT_EQ(kind_of(folder_ / "null"), S_IFCHR);
  EXPECT_EQ(read_text(folder_ / "null"), "");
}

TEST_F(Files, OnAFullDeviceAreRefusedBeforeAndAfter) {
  if (!make_device(folder_ / "full", 7)) GTEST_SKIP() << "devices cannot be made here";
  fs::create_symlink(folder_ / "full", folder_ / "link");
  for (const char* name : {"full", "link"}) {
    const auto file = folder_ / name;
    EXPECT_TRUE(holds(mistake_of("full", [&] { expect_writable(file); }).what, "No space"));
    EXPECT_TRUE(holds(mistake_of("full", [&] { write_text(file, "x"); }).what, "No space"));
  }
  EXPECT_EQ(kind_of(folder_ / "full"), S_IFCHR);
}

TEST_F(Files, ThatAreNamedPipesReachTheirReader) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  auto reader = std::async(std::launch::async, [&] { return read_text(pipe); });
  expect_writable(pipe);
  write_text(pipe, "through the pipe");
  EXPECT_EQ(reader.get(), "through the pipe");
  EXPECT_EQ(kind_of(pipe), S_IFIFO);
}

TEST_F(Files, NamedMinusAreStandardOutput) {
  {
    const RedirectedOutput redirected(folder_ / "out");
    EXPECT_TRUE(is_standard_output("-"));
    expect_writable("-");
    write_text("-", "one,");
    write_text("/dev/stdout", "two,");
    // The shell's file, by its own name: what it holds already is not lost.
    write_text(folder_ / "out", "three");
  }
  EXPECT_EQ(read_bytes(folder_ / "out"), "one,two,three");
  EXPECT_FALSE(is_standard_output(folder_ / "out"));
  EXPECT_FALSE(fs::exists("-"));
}

TEST_F(Files, AreRefusedWhereTheyCannotBeWritten) {
  fs::create_directory(folder_ / "folder");
  write_bytes(folder_ / "file", "old");
  struct Case {
    const char* fact;
    fs::path file;
    const char* what;
  };
  const Case cases[] = {
      {"a folder", folder_ / "folder", "this is a folder, not a file"},
      {"a folder with a slash", folder_ / "folder/", "this is a folder, not a file"},
      {"a name that ends in a slash", folder_ / "new/", "directory"},
      {"no such folder", folder_ / "none" / "a", "none' does not exist"},
      {"a file for a folder", folder_ / "file" / "a", "Not a directory"},
      {"a name that is too long", folder_ / std::string(300, 'x'), "too long"},
      {"an empty name", "", "directory"},
      {"a folder of the kernel", "/proc/a.json", ""},
  };
  for (const Case& test : cases) {
    for (const auto& action : {+[](const fs::path& file) { expect_writable(file); },
                               +[](const fs::path& file) { write_text(file, "new"); }}) {
      const Mistake mistake = mistake_of(test.fact, [&] { action(test.file); });
      EXPECT_TRUE(holds(mistake.what, test.what)) << test.fact;
      EXPECT_EQ(mistake.where, test.file.string()) << test.fact;
    }
  }
  EXPECT_EQ(names_in(folder_.path()).size(), 2U);
}

TEST_F(Files, InAFolderThatIsReadOnlyAreToldBeforehand) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everything";
  fs::create_directory(folder_ / "closed");
  fs::permissions(folder_ / "closed", fs::perms(0555));
  mistake_of("read-only", [&] { expect_writable(folder_ / "closed" / "a.json"); });
}

TEST_F(Files, ThatAreProbedStayAsTheyAre) {
  write_bytes(folder_ / "old", "old");
  expect_writable(folder_ / "old");
  expect_writable(folder_ / "new");
  EXPECT_EQ(read_bytes(folder_ / "old"), "old");
  EXPECT_EQ(names_in(folder_.path()), std::vector<std::string>{"old"});
}

TEST_F(Files, AreReadUpToALimit) {
  if (!make_device(folder_ / "zero", 5)) GTEST_SKIP() << "devices cannot be made here";
  EXPECT_TRUE(holds(mistake_of("endless", [&] { read_text(folder_ / "zero"); }).what, "256 MiB"));
}

TEST_F(Files, LongerThanTheLimitAreRefusedUnread) {
  write_bytes(folder_ / "large", "x");
  fs::resize_file(folder_ / "large", static_cast<std::uintmax_t>(kLargestInput) + 1);
  EXPECT_TRUE(holds(mistake_of("large", [&] { read_text(folder_ / "large"); }).what, "256 MiB"));
}

TEST_F(Files, WithoutASizeAreReadToTheirEnd) {
  EXPECT_TRUE(holds(read_text("/proc/self/status"), "Name:"));
}

TEST_F(Files, ThatCannotBeReadSayWhy) {
  EXPECT_TRUE(holds(mistake_of("no file", [&] { read_text(folder_ / "none"); }).what, "No such"));
  EXPECT_EQ(mistake_of("a folder", [&] { read_text(folder_.path()); }).what,
            "this is a folder, not a file");
}

TEST_F(Files, GrowByAppending) {
  fs::create_symlink(folder_ / "target", folder_ / "link");
  {
    AppendFile file(folder_ / "link");
    file.append("one");
    file.append("two");
    EXPECT_EQ(file.read_all(), "onetwo");
    file.cut(3);
    file.append("three");
  }
  EXPECT_EQ(read_bytes(folder_ / "target"), "onethree");
  mistake_of("a folder", [&] { const AppendFile file(folder_.path()); });
}

}  // namespace
}  // namespace braid
